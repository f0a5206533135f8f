#include <iostream>
#include <optional>

#include "check/branches.hpp"
#include "failover/strikes.hpp"
#include "run/database.hpp"
#include "run/run.hpp"
#include "scaleout/citus.hpp"
#include "scaleout/sharded_run.hpp"

namespace idem::chaos {
namespace {

constexpr Micros kPatience = 4 * kSecond;  // of clients
constexpr Micros kForCluster = 120 * kSecond;
constexpr Micros kUntilEqual = 60 * kSecond;

// Those that leave one primary alone: a node that survives its agent has to be stopped by a
// watchdog.
const std::vector<std::string> kFaults = {"server",  "both",    "switchover", "refuse",
                                          "swallow", "standby", "watchdog"};

// The rows of a server's shards, as one value that a standby must have, too.
constexpr const char* kContents = R"(
SET citus.override_table_visibility = off;
SELECT md5(string_agg(relname || query_to_xml(format(
        'SELECT md5(string_agg(t::text, '';'' ORDER BY t::text)) FROM %s AS t', oid::regclass),
        false, false, '')::text, '|' ORDER BY relname)) FROM pg_class
    WHERE relname ~ '^(record|effect|part|look)_[0-9]+$' AND relkind = 'r')";

// How the coordinator's copy of the metadata differs from the primaries' addresses, and other
// nodes' copies from the coordinator's.
constexpr const char* kOldAddresses = R"(
SELECT count(*) FROM pg_dist_node
    WHERE noderole = 'primary' AND NOT (metadatasynced AND nodeport = ANY ('{%PORTS%}')))";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
    return text.replace(text.find(what), what.size(), by);
}

// A coordinator and two workers under Patroni. Each worker has a standby, which takes over.
class NodesFailOver : public ShardedRun {
  public:
    explicit NodesFailOver(const Options& options)
        : ShardedRun(options), mode_(mode_of(options.patroni)), etcd_(options.folder) {
        mix_.longest_lease = 2 * kSecond;
        mix_.cold_every = 2;
        mix_.pace = 25 * kMillisecond;
        habits_.patience = kPatience;
        if (options_.faults == std::vector<std::string>{"default"}) options_.faults = kFaults;
        for (int group = 0; group < 3; ++group) add_group(group);
    }

  private:
    std::string title() const override {
        return std::string("Citus and Patroni, mode ") + name_of(mode_);
    }
    std::string name() const override { return std::string("citus-patroni-") + name_of(mode_); }
    const Server& server() override { return groups_[0]->nodes()[0]->server; }

    // The coordinator is alone: commits there wait for no standby.
    void add_group(int group) {
        Formation formation;
        formation.mode = group == 0 || options_.async_as_sync ? Mode::Async : mode_;
        formation.servers = group == 0 ? 1 : 2;
        formation.prefix = group == 0 ? "c" : "w" + std::to_string(group) + "-";
        formation.group = group;
        formation.settings = options_.settings;
        groups_.push_back(std::make_unique<Cluster>(options_.folder, etcd_, formation));
    }

    void bring_up() override {
        const Micros start = now();
        etcd_.start();
        for (auto& group : groups_) group->start();
        for (auto& group : groups_) ports_.push_back(group->primary().server.port());
        await_nodes();
        std::cout << "  three nodes after " << (now() - start) / kSecond << " s" << std::endl;
        distribute();
        learn_homes();
        for (std::size_t group = 0; group < groups_.size(); ++group)
            watches_.push_back(std::make_unique<Watch>(
                *groups_[group],
                [this, group](const Node& node) { publish(group, node.server.port()); }));
    }

    void await_nodes() {
        for (const Micros deadline = now() + kForCluster;; rest(200 * kMillisecond)) {
            const std::string missing = old_addresses();
            if (missing.empty() &&
                Citus::ask(server(), "SELECT count(*) FROM pg_dist_node WHERE noderole = 'primary'")
                        .at(0) == "3")
                return;
            if (now() > deadline) throw std::runtime_error("the nodes do not join: " + missing);
        }
    }

    // Clients ask the primaries, as behind a proxy that looks for them.
    void publish(std::size_t group, int port) {
        const std::lock_guard<std::mutex> guard(mutex_);
        ports_[group] = port;
        std::vector<std::string> asked;
        std::vector<std::string> all;
        for (std::size_t i = 0; i < groups_.size(); ++i)
            for (const auto& node : groups_[i]->nodes()) {
                if (node->server.port() != ports_[i]) continue;
                const std::string writable = " target_session_attrs=read-write";
                asked.push_back(node->server.connection_string() + writable);
                all.push_back(node->server.connection_string("postgres") + writable);
            }
        target_.set_nodes(asked, all);
    }

    // Why the nodes would not find each other. Empty: they do.
    std::string old_addresses() {
        std::string ports;
        {
            const std::lock_guard<std::mutex> guard(mutex_);
            for (const int port : ports_)
                ports += (ports.empty() ? "" : ",") + std::to_string(port);
        }
        try {
            const std::string count =
                Citus::ask(server(), replaced(kOldAddresses, "%PORTS%", ports)).at(0);
            return count == "0" ? "" : "Citus has an old address of " + count + " nodes";
        } catch (const pqxx::failure& error) {
            return error.what();
        }
    }

    // One worker at a time.
    void disturb() override {
        if (options_.old_address) groups_[0]->nodes()[0]->agent.freeze();
        std::vector<std::unique_ptr<Strikes>> workers;
        for (std::size_t group = 1; group < groups_.size(); ++group)
            workers.push_back(std::make_unique<Strikes>(*groups_[group], *watches_[group],
                                                        options_.seed + group, options_.faults,
                                                        [this] { return old_addresses(); }));
        const Micros end = now() + options_.seconds * kSecond;
        for (std::size_t turn = 0; turn == 0 || now() < end; ++turn) {
            Strikes& worker = *workers[turn % workers.size()];
            worker.strike_once();
            if (!worker.failures().empty()) break;
        }
        std::map<std::string, int> fired;
        for (const auto& worker : workers) {
            add(worker->failures());
            strikes_.push_back(worker->done());
            for (const auto& [kind, count] : worker->fired()) fired[kind] += count;
        }
        add(fired);
    }

    // No transaction is prepared any more.
    void come_to_rest() override {
        const Micros deadline = now() + kForCluster;
        for (auto& group : groups_)
            while (group->primary().server.value("SELECT count(*) FROM pg_prepared_xacts") != "0" &&
                   now() < deadline)
                rest(100 * kMillisecond);
    }

    void look_at_rest() override {
        for (const auto& watch : watches_)
            for (const std::string& both : watch->doubles())
                at_rest_.push_back({5, "two primaries of one timeline: " + both});
        watches_.clear();
        const std::size_t lost = count_losses(history_).acknowledged_and_lost;
        if (lost > 0)
            at_rest_.push_back({4, std::to_string(lost) + " effects acknowledged, and lost"});
        for (auto& group : groups_) {
            if (!are_equal(*group)) at_rest_.push_back({20, "the servers of a node differ"});
            for (const auto& node : group->nodes()) {
                if (node.get() == &group->primary())
                    expect_rest(node->name, node->server);
                else
                    add(check_standby(node->server, true));
            }
        }
    }

    // Sweepers are still at work, so it may take several attempts.
    static bool are_equal(const Cluster& group) {
        for (const Micros deadline = now() + kUntilEqual; now() < deadline;
             rest(200 * kMillisecond)) {
            std::set<std::string> contents;
            for (const auto& node : group.nodes()) contents.insert(node->server.value(kContents));
            if (contents.size() == 1) return true;
        }
        return false;
    }

    // No shard moves in such a run.
    void learn_homes() {
        for (const Key& key : hot_keys(mix_))
            homes_[key.principal] =
                std::stoul(Citus::ask(server(),
                                      "SELECT groupid FROM pg_dist_placement WHERE shardid ="
                                      " get_shard_id_for_distribution_column('chaos.effect', '" +
                                          key.principal + "')")
                               .at(0));
    }

    // Of the principals whose records the worker has.
    std::vector<Micros> acknowledgements_of(std::size_t group) const {
        History own = history_;
        own.calls.clear();
        for (const Call& call : history_.calls) {
            const auto home = homes_.find(call.key.principal);
            if (call.key.key.empty() || (home != homes_.end() && home->second == group))
                own.calls.push_back(call);
        }
        return acknowledgements(own);
    }

    void print_more() const override {
        ShardedRun::print_more();
        for (std::size_t i = 0; i < strikes_.size(); ++i)
            print_strikes(strikes_[i], acknowledgements_of(i + 1));
        print_losses(history_);
    }

    const Mode mode_;
    Etcd etcd_;
    std::vector<std::unique_ptr<Cluster>> groups_;  // by their numbers
    std::mutex mutex_;
    std::vector<int> ports_;  // of the primaries
    std::vector<std::unique_ptr<Watch>> watches_;
    std::vector<std::vector<Strike>> strikes_;  // of each worker
    std::map<std::string, std::size_t> homes_;  // the group of each principal
};

}  // namespace

Conclusion run_node_failover(const Options& options) {
    return NodesFailOver(options).play();
}

}  // namespace idem::chaos
