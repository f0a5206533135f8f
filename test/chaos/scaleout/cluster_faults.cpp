#include "scaleout/cluster_faults.hpp"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "clock.hpp"
#include "load/patience.hpp"

namespace idem::chaos {
namespace {

using Lane = ClusterFaults::Lane;

constexpr int kForMove = 20000;  // milliseconds
constexpr int kTries = 5;        // of an operator to get rid of a node
constexpr Micros kForStart = 60 * kSecond;

Micros pause_of(Lane lane) {
    switch (lane) {
        case Lane::Connections:
            return 400 * kMillisecond;
        case Lane::Servers:
            return 8 * kSecond;
        case Lane::Operators:
            return 400 * kMillisecond;
        case Lane::Routine:
            break;
    }
    return 2 * kSecond;
}

std::vector<std::string> principals_of(const Mix& mix) {
    std::set<std::string> all;
    for (const Key& key : hot_keys(mix)) all.insert(key.principal);
    return {all.begin(), all.end()};
}

}  // namespace

const std::vector<ClusterFaults::Kind>& ClusterFaults::kinds() {
    static const std::vector<Kind> kKinds = {
        {"cancel", Lane::Connections, 2, &ClusterFaults::cancel},
        {"terminate", Lane::Connections, 3, &ClusterFaults::terminate},
        {"disconnect", Lane::Connections, 5, &ClusterFaults::disconnect},
        {"kill", Lane::Servers, 2, &ClusterFaults::kill},
        {"immediate", Lane::Servers, 1, &ClusterFaults::stop_immediately},
        {"fast", Lane::Servers, 1, &ClusterFaults::stop_fast},
        {"move", Lane::Operators, 12, &ClusterFaults::move_blocking},
        {"logical", Lane::Operators, 4, &ClusterFaults::move_logically},
        {"rebalance", Lane::Operators, 2, &ClusterFaults::rebalance},
        {"join", Lane::Operators, 8, &ClusterFaults::join},
        {"drain", Lane::Operators, 1, &ClusterFaults::drain},
        {"sweep", Lane::Routine, 1, &ClusterFaults::sweep},
        {"policy", Lane::Routine, 1, &ClusterFaults::change_policy},
    };
    return kKinds;
}

ClusterFaults::ClusterFaults(Citus& citus, const Target& target, const Mix& mix, std::uint64_t seed,
                             Lane lane, const std::vector<std::string>& wanted)
    : Injector(target, Random(seed, 0xc1705, static_cast<std::uint64_t>(lane)), pause_of(lane)),
      citus_(citus),
      principals_(principals_of(mix)),
      begin_(now()) {
    const bool usual = wanted == std::vector<std::string>{"default"};
    for (const std::string& name : wanted)
        if (!usual && std::none_of(kinds().begin(), kinds().end(),
                                   [&](const Kind& kind) { return name == kind.name; }))
            throw std::invalid_argument("no fault '" + name + "'");
    for (const Kind& kind : kinds())
        if (kind.lane == lane &&
            (usual || std::find(wanted.begin(), wanted.end(), kind.name) != wanted.end()))
            add(kind.name, kind.weight, [this, &kind] { return guarded(kind); });
}

bool ClusterFaults::guarded(const Kind& kind) {
    if (kind.lane != Lane::Operators) return tried(kind);
    const Micros from = now();
    const bool done = tried(kind);
    moves_.push_back({from, now()});
    return done;
}

// Another fault may just be affecting the object that this one needs.
bool ClusterFaults::tried(const Kind& kind) {
    try {
        return (this->*kind.fault)();
    } catch (const pqxx::broken_connection&) {
    } catch (const std::exception& error) {
        tell_failure(kind.name, error);
    }
    rest(pause_);
    return false;
}

// Every other time a fault that has not happened yet: some take so long, or are interrupted so
// often, that chance alone would rarely reach them.
std::string ClusterFaults::draw() {
    std::vector<std::pair<std::string, int>> missing;
    for (const auto& weight : weights_)
        if (fired_.at(weight.first) == 0) missing.push_back(weight);
    return missing.empty() || random_.one_in(2) ? Injector::draw() : random_.weighted(missing);
}

void ClusterFaults::heal() {
    if (fired_.count("kill") + fired_.count("immediate") + fired_.count("fast") > 0)
        for (Citus::Worker* node : citus_.all()) bring_back(*node);
}

void ClusterFaults::say(const std::string& what) const {
    std::printf("  %4d s  %s\n", static_cast<int>((now() - begin_) / kSecond), what.c_str());
    (void)std::fflush(stdout);
}

void ClusterFaults::tell_failure(const char* kind, const std::exception& error) const {
    const std::string text = error.what();
    say(std::string(kind) + " failed: " + text.substr(0, text.find('\n')).substr(0, 100));
}

Citus::Worker& ClusterFaults::any_member() {
    return *random_.pick(citus_.members());
}

// ---- connections ----

// Of clients, preferably one with a claim.
bool ClusterFaults::signal_session(const char* function) {
    const bool holder = !random_.one_in(3);
    const std::string number = std::to_string(random_.between(0, 1 << 20));
    const std::string pids =
        holder ? "SELECT DISTINCT pid FROM pg_locks JOIN pg_stat_activity USING (pid)"
                 " WHERE locktype = 'advisory' AND objsubid = 18756 AND granted"
                 " AND (application_name LIKE 'chaos %' OR application_name LIKE 'citus_internal%')"
               : "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'chaos %'";
    return !Citus::ask(any_member().server,
                       std::string("SELECT ") + function +
                           "(pid) FROM (SELECT pid, row_number() OVER () - 1 n,"
                           " count(*) OVER () AS all FROM (" +
                           pids + ") p) q WHERE n = " + number + " % q.all")
                .empty();
}

bool ClusterFaults::cancel() {
    return signal_session("pg_cancel_backend");
}
bool ClusterFaults::terminate() {
    return signal_session("pg_terminate_backend");
}

// Between nodes: one connection, or all that a node serves. Mostly not one that copies a shard, or
// no copy would ever finish.
bool ClusterFaults::disconnect() {
    const std::string some =
        random_.one_in(8) ? ""
                          : std::string(random_.one_in(4) ? "" : " AND query ~* 'idem_|prepare'") +
                                " ORDER BY random() LIMIT 1";
    return !Citus::ask(any_member().server,
                       "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
                       " WHERE application_name LIKE 'citus_internal%' AND state <> 'idle'" +
                           some + ") AS victims")
                .empty();
}

// ---- servers ----

bool ClusterFaults::stop_server(const char* way) {
    Citus::Worker& victim = any_member();
    const Micros downtime = random_.spread(10 * kMillisecond, 1500 * kMillisecond);
    say(victim.name + " stops: " + way);
    if (way == std::string("kill"))
        (void)victim.server.kill();
    else
        victim.server.stop(way);
    rest(downtime);
    bring_back(victim);
    say(victim.name + " is back");
    return true;
}

bool ClusterFaults::kill() {
    return stop_server("kill");
}
bool ClusterFaults::stop_immediately() {
    return stop_server("immediate");
}
bool ClusterFaults::stop_fast() {
    return stop_server("fast");
}

// The killed server's remaining processes have to end first.
void ClusterFaults::bring_back(Citus::Worker& victim) {
    for (const Micros deadline = now() + kForStart; now() < deadline; rest(100 * kMillisecond)) {
        try {
            (void)Citus::ask(victim.server, "SELECT 1");
            return;
        } catch (const pqxx::failure&) {
        }
        try {
            victim.server.start();
        } catch (const std::runtime_error&) {
        }
    }
}

// ---- operators ----

// The shard of a principal that clients ask for, with all beside it.
bool ClusterFaults::move(const char* mode) {
    const std::string principal = random_.pick(principals_);
    const Server& coordinator = citus_.coordinator().server;
    const std::string from = Citus::ask(coordinator,
                                        "SELECT nodename FROM citus_shards WHERE shardid = "
                                        "get_shard_id_for_distribution_column('chaos.effect', '" +
                                            principal + "')")
                                 .at(0);
    Citus::Workers targets;
    const Citus::Worker* source = nullptr;
    for (Citus::Worker* node : citus_.members()) {
        if (node->server.folder() == from)
            source = node;
        else if (node != &citus_.coordinator())
            targets.push_back(node);
    }
    if (source == nullptr || targets.empty()) return false;
    const Citus::Worker& target = *random_.pick(targets);
    Citus::ask(coordinator,
               "SELECT citus_move_shard_placement("
               "get_shard_id_for_distribution_column('chaos.effect', '" +
                   principal + "'), " + Citus::address(*source) + ", " + Citus::address(target) +
                   ", '" + mode + "')",
               kForMove);
    return true;
}

bool ClusterFaults::move_blocking() {
    return move("block_writes");
}
bool ClusterFaults::move_logically() {
    return move("force_logical");
}

bool ClusterFaults::rebalance() {
    const char* const mode = random_.one_in(2) ? "block_writes" : "force_logical";
    Citus::ask(citus_.coordinator().server,
               std::string("SELECT rebalance_table_shards(shard_transfer_mode => '") + mode + "')",
               3 * kForMove);
    say(std::string("rebalanced: ") + mode);
    return true;
}

bool ClusterFaults::join() {
    Citus::Worker* worker = citus_.worker(false, 0);
    if (worker == nullptr) return false;
    citus_.join(*worker);
    say(worker->name + " has joined");
    rest(random_.spread(10 * kMillisecond, kSecond));
    while (!stop_ && !replicate()) rest(pause_);
    return true;
}

// Until it has them no shard can be moved at all.
bool ClusterFaults::replicate() {
    try {
        Citus::ask(citus_.coordinator().server,
                   "SELECT replicate_reference_tables('block_writes')");
        return true;
    } catch (const pqxx::failure&) {
        return false;  // a node is down
    }
}

// Any worker, if another one is left to move to.
bool ClusterFaults::drain() {
    if (citus_.worker(false, 0) != nullptr) return false;
    Citus::Worker* worker = citus_.worker(true, static_cast<std::size_t>(random_.between(0, 99)));
    const char* const mode = random_.one_in(2) ? "block_writes" : "force_logical";
    say(worker->name + " is drained: " + mode);
    for (int tries = 0; tries < kTries && !stop_; ++tries) {
        if (leave(*worker, mode)) {
            say(worker->name + " is removed");
            return true;
        }
        rest(kSecond);
    }
    citus_.stay(*worker);
    return false;
}

// Continues an interrupted operation.
bool ClusterFaults::leave(Citus::Worker& worker, const char* mode) {
    try {
        citus_.leave(worker, mode);
        return true;
    } catch (const std::exception& error) {
        tell_failure("drain", error);
        return false;
    }
}

bool ClusterFaults::sweep() {
    Citus::ask(any_member().server, "SELECT idem_cleanup(100)");
    return true;
}

// A scope that the work never uses: opened or closed from one node, and asked on all.
bool ClusterFaults::change_policy() {
    const bool closed = random_.one_in(2);
    Citus::Worker& changed = any_member();
    pqxx::connection connection(changed.server.connection_string() +
                                " application_name=chaos-admin");
    Warnings warnings(connection);
    pqxx::nontransaction tx(connection);
    tx.exec(std::string("SELECT idem_policy_set('door', allowed_role => ") +
            (closed ? "'chaos_keeper'" : "NULL") + ", replace => true, reason => 'chaos')");
    if (warnings.heard()) return false;  // a node has not heard of the commit
    for (const Citus::Worker* node : citus_.members()) {
        try {
            expect_door(*node, changed, closed);
        } catch (const pqxx::failure&) {
        }
    }
    return true;
}

void ClusterFaults::expect_door(const Citus::Worker& asked, const Citus::Worker& changed,
                                bool closed) {
    pqxx::connection connection(asked.server.connection_string() + " application_name=chaos-admin");
    pqxx::nontransaction tx(connection);
    bool refused = false;
    tx.exec("BEGIN");
    tx.exec("SET LOCAL ROLE chaos_stranger");
    try {
        tx.exec("SELECT outcome FROM idem_begin('order', scope => 'door', principal => '" +
                random_.pick(principals_) + "')");
    } catch (const pqxx::insufficient_privilege&) {
        refused = true;
    }
    tx.exec("ROLLBACK");
    if (refused != closed)
        found_.push_back({24, "a scope that was " + std::string(closed ? "closed" : "opened") +
                                  " on " + changed.name + " was not so on " + asked.name});
}

}  // namespace idem::chaos
