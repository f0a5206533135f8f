#include "faults/injector.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <pqxx/pqxx>
#include <stdexcept>

#include "load/client.hpp"

namespace idem::chaos {
namespace {

constexpr Micros kPause = 30 * kMillisecond;  // between two faults, on average
constexpr const char* kSweep = "sweep";       // goes on all the time

}  // namespace

// With their weights: crashes cost seconds, so they are rare.
const std::map<std::string, std::pair<Injector::Fault, int>>& Injector::faults() {
    static const std::map<std::string, std::pair<Fault, int>> kFaults = {
        {"cancel", {&Injector::cancel, 30}},
        {"terminate", {&Injector::terminate, 30}},
        {"kill", {&Injector::kill, 4}},
        {"pause", {&Injector::pause, 12}},
        {"crash", {&Injector::crash, 3}},
        {"vacuum", {&Injector::vacuum, 8}},
        {"reindex", {&Injector::reindex, 8}},
        {"triggers", {&Injector::add_triggers, 10}},
        {"owner", {&Injector::give_away, 5}},
        {"locks", {&Injector::fill_locks, 4}},
        {"connections", {&Injector::fill_connections, 4}},
        {"disk", {&Injector::fill_disk, 10}},
    };
    return kFaults;
}

Lane Injector::lane_of(const std::string& kind) {
    if (kind != kSweep && faults().count(kind) == 0)
        throw std::invalid_argument("no fault '" + kind + "'");
    if (kind == "cancel" || kind == "terminate" || kind == "pause") return Lane::Moments;
    return kind == "triggers" || kind == "owner" ? Lane::Users : Lane::Maintenance;
}

Injector::Injector(Server& server, const Target& target, std::uint64_t seed,
                   std::vector<std::string> kinds, std::string small_disk)
    : server_(server),
      target_(target),
      random_(seed, 0xfa017, kinds.size()),
      kinds_(std::move(kinds)),
      small_disk_(std::move(small_disk)) {
    for (const std::string& kind : kinds_) fired_[kind] = 0;
}

void Injector::start() {
    const bool sweeps = fired_.count(kSweep) > 0;
    if (fired_.size() > (sweeps ? 1 : 0)) threads_.emplace_back([this] { run(); });
    if (sweeps) threads_.emplace_back([this] { sweep(&fired_.at(kSweep)); });
}

void Injector::stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    if (!threads_.empty()) heal();
    threads_.clear();
}

void Injector::heal() {
    const auto until_done = [this](const char* kind, const auto& repair) {
        for (int tries = 0; fired_.count(kind) > 0 && tries < 100 && !repair(); ++tries)
            rest(100 * kMillisecond);
    };
    until_done("triggers", [this] { return drop_triggers(); });
    until_done("owner", [this] { return give("postgres"); });
}

// Asks on the connection that is kept, or on a new one.
pqxx::result Injector::query(const std::string& sql) {
    try {
        if (!admin_)
            admin_ = std::make_unique<pqxx::connection>(target_.direct() +
                                                        " application_name=chaos-admin");
        pqxx::nontransaction tx(*admin_);
        return tx.exec(sql);
    } catch (const pqxx::failure&) {
        admin_.reset();
        throw;
    }
}

// Maintenance gives way to a holder that sleeps, instead of stopping everybody behind it.
bool Injector::maintain(const std::string& sql) {
    try {
        query("SET lock_timeout = '300ms'; SET statement_timeout = '3s'");
        query(sql);
        query("RESET lock_timeout; RESET statement_timeout");
        return true;
    } catch (const pqxx::failure&) {
        return false;
    }
}

void Injector::run() {
    while (!stop_) {
        rest(random_.between(kPause / 10, 2 * kPause));
        fire();
    }
}

void Injector::fire() {
    std::vector<std::pair<std::string, int>> choices;
    for (const std::string& kind : kinds_)
        if (kind != kSweep) choices.emplace_back(kind, faults().at(kind).second);
    const std::string kind = random_.weighted(choices);
    try {
        if ((this->*faults().at(kind).first)()) ++fired_[kind];
    } catch (const pqxx::failure&) {
        rest(kPause);  // the server is down, or has not got what the fault needs
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
    pqxx::result pids = query(holder ? holders : anybody);
    // A claim is held for a moment only.
    for (int tries = 0; pids.empty() && tries < 20; ++tries) pids = query(holders);
    if (pids.empty()) return 0;
    return pids[static_cast<int>(number % static_cast<std::size_t>(pids.size()))][0].as<int>();
}

bool Injector::signal_victim(const char* function) {
    const int pid = victim();
    if (pid == 0) return false;
    return query(std::string("SELECT ") + function + "(" + std::to_string(pid) + ")")[0][0]
        .as<bool>();
}

bool Injector::cancel() {
    return signal_victim("pg_cancel_backend");
}
bool Injector::terminate() {
    return signal_victim("pg_terminate_backend");
}

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
    return maintain(random_.one_in(2) ? "VACUUM FULL idempotency.record"
                                      : "CLUSTER idempotency.record USING record_pkey");
}

// One that was interrupted leaves an index that is of no use.
bool Injector::reindex() {
    const bool done = maintain("REINDEX TABLE CONCURRENTLY idempotency.record");
    for (const auto& index : query("SELECT indexrelid::regclass FROM pg_index WHERE NOT indisvalid"
                                   " AND indrelid = to_regclass('idempotency.record')"))
        (void)maintain(std::string("DROP INDEX ") + index[0].c_str());
    return done;
}

// Of the kinds that users have; they come and go, and with them the way in which rows are written.
bool Injector::add_triggers() {
    static const char* const kDeeds[] = {"cursor", "write", "settings", "raise"};
    const bool before = random_.one_in(2);
    const std::string deed = kDeeds[random_.between(0, std::size(kDeeds) - 1)];
    // One that raises on DELETE would only stop the sweeper.
    const bool deletes = deed != "raise" && random_.one_in(2);
    const Micros stay = random_.spread(20 * kMillisecond, 600 * kMillisecond);
    const bool added = maintain("CREATE TRIGGER users " + std::string(before ? "BEFORE" : "AFTER") +
                                " INSERT OR UPDATE" + (deletes ? " OR DELETE" : "") +
                                " ON idempotency.record FOR EACH ROW"
                                " EXECUTE FUNCTION chaos.user_trigger('" +
                                deed + "')");
    if (added) rest(stay);
    while (!drop_triggers() && !stop_) rest(kPause);
    return added;
}

bool Injector::drop_triggers() {
    return maintain("DROP TRIGGER IF EXISTS users ON idempotency.record");
}

bool Injector::give_away() {
    const Micros stay = random_.spread(20 * kMillisecond, 600 * kMillisecond);
    const bool given = give("chaos_owner");
    if (given) rest(stay);
    while (!give("postgres") && !stop_) rest(kPause);
    return given;
}

bool Injector::give(const std::string& role) {
    return maintain("ALTER TABLE idempotency.record OWNER TO " + role +
                    "; ALTER TABLE idempotency.policy OWNER TO " + role);
}

// In a thread of its own, at full rate, besides the sweepers of the server.
void Injector::sweep(int* count) {
    while (!stop_) {
        try {
            pqxx::connection connection(target_.direct() + " application_name=chaos-admin");
            for (pqxx::nontransaction tx(connection); !stop_; ++*count, rest(5 * kMillisecond))
                tx.exec("SELECT idem_cleanup(100)");
        } catch (const pqxx::failure&) {
            rest(10 * kMillisecond);
        }
    }
}

// Takes locks until there are none, keeps them for a while, and gives them back.
bool Injector::fill_locks() {
    bool full = false;
    pqxx::connection connection(target_.direct() + " application_name=chaos-admin");
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
        while (!stop_ && all.size() < 1000)
            all.push_back(std::make_unique<pqxx::connection>(target_.direct() +
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
