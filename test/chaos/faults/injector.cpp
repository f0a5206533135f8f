#include "faults/injector.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <pqxx/pqxx>

#include "load/client.hpp"

namespace idem::chaos {
namespace {

constexpr Micros kPause = 60 * kMillisecond;  // between two faults, on average

// Maintenance gives way to a holder that sleeps, instead of stopping everybody behind it.
bool maintain(const Server& server, const std::string& sql) {
    try {
        pqxx::connection connection(server.connection_string() + " application_name=chaos-admin");
        pqxx::nontransaction tx(connection);
        tx.exec("SET lock_timeout = '300ms'; SET statement_timeout = '3s'");
        tx.exec(sql);
        return true;
    } catch (const pqxx::failure&) {
        return false;
    }
}

}  // namespace

// With their weights: crashes cost seconds, so they are rare.
const std::map<std::string, std::pair<Injector::Fault, int>>& Injector::faults() {
    static const std::map<std::string, std::pair<Fault, int>> kFaults = {
        {"cancel", {&Injector::cancel, 30}},
        {"terminate", {&Injector::terminate, 30}},
        {"kill", {&Injector::kill, 2}},
        {"pause", {&Injector::pause, 12}},
        {"crash", {&Injector::crash, 1}},
        {"vacuum", {&Injector::vacuum, 6}},
        {"reindex", {&Injector::reindex, 6}},
        {"sweep", {&Injector::sweep, 20}},
        {"locks", {&Injector::fill_locks, 3}},
        {"connections", {&Injector::fill_connections, 3}},
        {"disk", {&Injector::fill_disk, 10}},
    };
    return kFaults;
}

std::vector<std::string> Injector::all_kinds() {
    std::vector<std::string> kinds;
    for (const auto& [name, fault] : faults()) kinds.push_back(name);
    return kinds;
}

Injector::Injector(Server& server, std::uint64_t seed, std::vector<std::string> kinds,
                   std::string small_disk)
    : server_(server), random_(seed, 0xfa017), kinds_(std::move(kinds)),
      small_disk_(std::move(small_disk)) {
    for (const std::string& kind : kinds_) fired_[kind] = 0;
}

void Injector::start() {
    if (!kinds_.empty()) thread_ = std::thread([this] { run(); });
}

void Injector::stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
}

void Injector::run() {
    while (!stop_) {
        rest(random_.between(kPause / 10, 2 * kPause));
        fire();
    }
}

void Injector::fire() {
    std::vector<std::pair<std::string, int>> choices;
    for (const std::string& kind : kinds_) choices.emplace_back(kind, faults().at(kind).second);
    const std::string kind = random_.weighted(choices);
    try {
        if ((this->*faults().at(kind).first)()) ++fired_[kind];
    } catch (const pqxx::failure&) {
        server_.await_ready();
    }
}

int Injector::victim() {
    const char* const holders =
        "SELECT DISTINCT pid FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE locktype = 'advisory' AND objsubid = 18756 AND granted"
        "   AND application_name LIKE 'chaos %' ORDER BY pid";
    const char* const anybody =
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'chaos %' ORDER BY pid";
    const bool holder = !random_.one_in(3);
    const auto number = static_cast<std::size_t>(random_.between(0, 1 << 20));
    std::vector<std::string> pids = server_.query(holder ? holders : anybody);
    return pids.empty() ? 0 : std::stoi(pids[number % pids.size()]);
}

bool Injector::signal_victim(const char* function) {
    const int pid = victim();
    if (pid == 0) return false;
    return server_.value(std::string("SELECT ") + function + "(" + std::to_string(pid) + ")") ==
           "t";
}

bool Injector::cancel() { return signal_victim("pg_cancel_backend"); }
bool Injector::terminate() { return signal_victim("pg_terminate_backend"); }

// The server takes it for damaged memory, ends all others and recovers.
bool Injector::kill() {
    const int pid = victim();
    if (pid == 0 || ::kill(pid, SIGKILL) != 0) return false;
    rest(100 * kMillisecond);
    server_.await_ready();
    return true;
}

bool Injector::pause() {
    const int pid = victim();
    if (pid == 0 || ::kill(pid, SIGSTOP) != 0) return false;
    rest(random_.spread(5 * kMillisecond, 800 * kMillisecond));
    return ::kill(pid, SIGCONT) == 0;
}

bool Injector::crash() {
    server_.crash_and_restart();
    return true;
}

bool Injector::vacuum() {
    return maintain(server_, random_.one_in(2) ? "VACUUM FULL idempotency.record"
                                               : "CLUSTER idempotency.record USING record_pkey");
}

// One that was interrupted leaves an index that is of no use.
bool Injector::reindex() {
    const bool done = maintain(server_, "REINDEX TABLE CONCURRENTLY idempotency.record");
    for (const std::string& index : server_.query(
             "SELECT indexrelid::regclass FROM pg_index WHERE NOT indisvalid"
             " AND indrelid = to_regclass('idempotency.record')"))
        (void)maintain(server_, "DROP INDEX " + index);
    return done;
}

bool Injector::sweep() {
    for (int i = 0; i < 20; ++i)
        if (!maintain(server_, "SELECT idem_cleanup(100)")) return false;
    return true;
}

// Takes locks until there are none, keeps them for a while, and gives them back.
bool Injector::fill_locks() {
    bool full = false;
    pqxx::connection connection(server_.connection_string() + " application_name=chaos-admin");
    pqxx::nontransaction tx(connection);
    try {
        for (int i = 0; i < 1000; ++i)
            tx.exec("SELECT pg_advisory_lock(n) FROM generate_series(" + std::to_string(i * 1000) +
                    ", " + std::to_string(i * 1000 + 999) + ") n");
    } catch (const pqxx::sql_error& error) {
        full = error.sqlstate() == "53200";
    }
    rest(random_.between(50, 300) * kMillisecond);
    return full;
}

bool Injector::fill_connections() {
    std::vector<std::unique_ptr<pqxx::connection>> all;
    bool full = false;
    try {
        while (all.size() < 1000)
            all.push_back(std::make_unique<pqxx::connection>(server_.connection_string() +
                                                             " application_name=chaos-admin"));
    } catch (const pqxx::failure&) {
        full = true;
    }
    rest(random_.between(50, 300) * kMillisecond);
    return full;
}

bool Injector::fill_disk() {
    const std::string ballast = small_disk_ + "/ballast";
    {
        std::ofstream out(ballast);
        const std::string block(1 << 16, 'x');
        while (out.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
        }
    }
    rest(random_.between(50, 400) * kMillisecond);
    return std::remove(ballast.c_str()) == 0;
}

}  // namespace idem::chaos
