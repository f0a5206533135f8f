#include "faults/server_faults.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <pqxx/pqxx>
#include <stdexcept>

#include "clock.hpp"

namespace idem::chaos {
namespace {

constexpr Micros kPause = 30 * kMillisecond;  // between two faults, on average
constexpr const char* kSweep = "sweep";       // goes on all the time

}  // namespace

// With their weights: crashes cost seconds, so they are rare.
const std::map<std::string, std::pair<ServerFaults::Kind, int>>& ServerFaults::faults() {
    static const std::map<std::string, std::pair<Kind, int>> kFaults = {
        {"cancel", {&ServerFaults::cancel, 30}},
        {"terminate", {&ServerFaults::terminate, 30}},
        {"kill", {&ServerFaults::kill, 4}},
        {"pause", {&ServerFaults::pause, 12}},
        {"crash", {&ServerFaults::crash, 3}},
        {"vacuum", {&ServerFaults::vacuum, 8}},
        {"reindex", {&ServerFaults::reindex, 8}},
        {"triggers", {&ServerFaults::add_triggers, 10}},
        {"owner", {&ServerFaults::give_away, 5}},
        {"locks", {&ServerFaults::fill_locks, 4}},
        {"connections", {&ServerFaults::fill_connections, 4}},
        {"disk", {&ServerFaults::fill_disk, 10}},
    };
    return kFaults;
}

Lane ServerFaults::lane_of(const std::string& kind) {
    if (kind != kSweep && faults().count(kind) == 0)
        throw std::invalid_argument("no fault '" + kind + "'");
    if (kind == "cancel" || kind == "terminate" || kind == "pause") return Lane::Moments;
    return kind == "triggers" || kind == "owner" ? Lane::Users : Lane::Maintenance;
}

ServerFaults::ServerFaults(Server& server, const Target& target, std::uint64_t seed,
                           const std::vector<std::string>& kinds, std::string small_disk)
    : Injector(target, Random(seed, 0xfa017, kinds.size()), kPause),
      server_(server),
      small_disk_(std::move(small_disk)) {
    for (const std::string& kind : kinds) {
        if (kind == kSweep) {
            fired_[kind] = 0;
        } else {
            const auto [fault, weight] = faults().at(kind);
            add(kind, weight, [this, fault = fault] { return (this->*fault)(); });
        }
    }
}

void ServerFaults::start() {
    Injector::start();
    if (fired_.count(kSweep) > 0) threads_.emplace_back([this] { sweep(&fired_.at(kSweep)); });
}

void ServerFaults::heal() {
    const auto until_done = [this](const char* kind, const auto& repair) {
        for (int tries = 0; fired_.count(kind) > 0 && tries < 100 && !repair(); ++tries)
            rest(100 * kMillisecond);
    };
    until_done("triggers", [this] { return drop_triggers(); });
    until_done("owner", [this] { return give("postgres"); });
}

// Maintenance gives way to a sleeping holder, instead of stopping every session behind it.
bool ServerFaults::maintain(const std::string& sql) {
    try {
        query("SET lock_timeout = '300ms'; SET statement_timeout = '3s'");
        query(sql);
        query("RESET lock_timeout; RESET statement_timeout");
        return true;
    } catch (const pqxx::failure&) {
        return false;
    }
}

int ServerFaults::victim() {
    constexpr char kSessions[] = "chaos %";
    std::vector<int> pids;
    const bool holder = !random_.one_in(3);
    const auto number = static_cast<std::size_t>(random_.between(0, 1 << 20));
    if (!holder)
        for (const auto& row :
             query("SELECT pid FROM pg_stat_activity WHERE application_name LIKE '" +
                   std::string(kSessions) + "' ORDER BY pid"))
            pids.push_back(row[0].as<int>());
    // A claim is held for a moment only.
    for (int tries = 0; pids.empty() && tries < 20; ++tries)
        for (const Holder& one : holders(kSessions)) pids.push_back(one.backend);
    return pids.empty() ? 0 : pids[number % pids.size()];
}

bool ServerFaults::signal_victim(const char* function) {
    const int pid = victim();
    if (pid == 0) return false;
    return query(std::string("SELECT ") + function + "(" + std::to_string(pid) + ")")[0][0]
        .as<bool>();
}

bool ServerFaults::cancel() {
    return signal_victim("pg_cancel_backend");
}
bool ServerFaults::terminate() {
    return signal_victim("pg_terminate_backend");
}

// The server assumes damaged memory, ends all other processes and recovers.
bool ServerFaults::kill() {
    const int pid = victim();
    if (pid == 0 || ::kill(pid, SIGKILL) != 0) return false;
    rest(100 * kMillisecond);
    server_.await_ready();
    return true;
}

bool ServerFaults::pause() {
    const int pid = victim();
    if (pid == 0 || ::kill(pid, SIGSTOP) != 0) return false;
    rest(random_.spread(5 * kMillisecond, 800 * kMillisecond));
    return ::kill(pid, SIGCONT) == 0;
}

bool ServerFaults::crash() {
    server_.crash_and_restart();
    return true;
}

bool ServerFaults::vacuum() {
    return maintain(random_.one_in(2) ? "VACUUM FULL idempotency.record"
                                      : "CLUSTER idempotency.record USING record_pkey");
}

// An interrupted build leaves an invalid index.
bool ServerFaults::reindex() {
    const bool done = maintain("REINDEX TABLE CONCURRENTLY idempotency.record");
    for (const auto& index : query("SELECT indexrelid::regclass FROM pg_index WHERE NOT indisvalid"
                                   " AND indrelid = to_regclass('idempotency.record')"))
        (void)maintain(std::string("DROP INDEX ") + index[0].c_str());
    return done;
}

// Triggers of the kinds that users have. They come and go, and with them the way in which rows are
// written.
bool ServerFaults::add_triggers() {
    static const char* const kDeeds[] = {"cursor", "write", "settings", "raise"};
    const bool before = random_.one_in(2);
    const std::string deed = kDeeds[random_.between(0, std::size(kDeeds) - 1)];
    // A trigger that raises on DELETE would only stop the sweeper.
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

bool ServerFaults::drop_triggers() {
    return maintain("DROP TRIGGER IF EXISTS users ON idempotency.record");
}

bool ServerFaults::give_away() {
    const Micros stay = random_.spread(20 * kMillisecond, 600 * kMillisecond);
    const bool given = give("chaos_owner");
    if (given) rest(stay);
    while (!give("postgres") && !stop_) rest(kPause);
    return given;
}

bool ServerFaults::give(const std::string& role) {
    return maintain("ALTER TABLE idempotency.record OWNER TO " + role +
                    "; ALTER TABLE idempotency.policy OWNER TO " + role);
}

// In another thread, at full rate, beside the sweepers of the server.
void ServerFaults::sweep(int* count) {
    while (!stop_) {
        try {
            pqxx::connection connection(direct());
            for (pqxx::nontransaction tx(connection); !stop_; ++*count, rest(5 * kMillisecond))
                tx.exec("SELECT idem_cleanup(100)");
        } catch (const pqxx::failure&) {
            rest(10 * kMillisecond);
        }
    }
}

// Takes locks until there are none left, keeps them for a while, and releases them.
bool ServerFaults::fill_locks() {
    bool full = false;
    pqxx::connection connection(direct());
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

bool ServerFaults::fill_connections() {
    std::vector<std::unique_ptr<pqxx::connection>> all;
    bool full = false;
    try {
        while (!stop_ && all.size() < 1000)
            all.push_back(std::make_unique<pqxx::connection>(direct()));
    } catch (const pqxx::failure&) {
        full = true;
    }
    rest(random_.between(50, 300) * kMillisecond);
    return full;
}

bool ServerFaults::fill_disk() {
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
