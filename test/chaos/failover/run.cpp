#include "run/run.hpp"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>

#include "check/branches.hpp"
#include "failover/strikes.hpp"
#include "run/database.hpp"
#include "run/trial.hpp"

namespace idem::chaos {
namespace {

constexpr Micros kPatience = 4 * kSecond;  // of clients
constexpr Micros kUntilEqual = 60 * kSecond;

// State that must be the same on every server, as one value.
constexpr const char* kContents = R"(
SELECT md5(string_agg(lines, '|' ORDER BY name)) FROM (
    SELECT 'record', string_agg(r::text, ';' ORDER BY r::text) FROM idempotency.record r UNION ALL
    SELECT 'effect', string_agg(r::text, ';' ORDER BY r::text) FROM chaos.effect r UNION ALL
    SELECT 'part', string_agg(r::text, ';' ORDER BY r::text) FROM chaos.part r UNION ALL
    SELECT 'look', string_agg(r::text, ';' ORDER BY r::text) FROM chaos.look r) AS all_rows (name, lines)
)";

// Keys that one transaction uses and no call forgets, with results that do not expire within the
// run. A failed idem_execute has left nothing, nor has a session that did not return.
constexpr const char* kEffectsAlone = R"(
SELECT count(*) FROM chaos.effect e WHERE key LIKE 'cold-%' AND NOT EXISTS (
    SELECT FROM idempotency.record r WHERE r.scope = e.scope COLLATE "C"
        AND r.principal = e.principal COLLATE "C" AND r.key = e.key COLLATE "C"
        AND r.status IN ('c', 'f')))";
std::string records_alone() {
    return R"(
SELECT count(*) FROM idempotency.record r WHERE (status = 'c' OR status = 'f' AND operation IS NULL)
    AND scope <> 'brief' AND error IS DISTINCT FROM ')" +
           std::string(kGivenUp) + R"('
    AND NOT EXISTS (SELECT FROM chaos.effect e WHERE r.scope = e.scope COLLATE "C"
        AND r.principal = e.principal COLLATE "C" AND r.key = e.key COLLATE "C"))";
}

std::string seconds(Micros duration) {
    char text[32];
    (void)std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(duration) / kSecond);
    return text;
}

Formation formation_of(const Options& options) {
    Formation formation;
    formation.mode = options.async_as_sync ? Mode::Async : mode_of(options.patroni);
    formation.settings = options.settings;
    return formation;
}

class FailoverRun : public Trial {
  public:
    explicit FailoverRun(const Options& options)
        : Trial(options),
          mode_(mode_of(options.patroni)),
          etcd_(options.folder),
          cluster_(options.folder, etcd_, formation_of(options)) {
        mix_.longest_lease = 2 * kSecond;
        mix_.cold_every = 2;
        mix_.pace = 25 * kMillisecond;
        // Sessions would look in vain for transactions prepared on a lost server.
        mix_.prepare = false;
        habits_ = {true, kPatience, options_.trusts_warnings};
        options_.faults.erase(
            std::remove(options_.faults.begin(), options_.faults.end(), "default"),
            options_.faults.end());
    }

  private:
    std::string title() const override { return std::string("Patroni, mode ") + name_of(mode_); }
    std::string name() const override { return std::string("patroni-") + name_of(mode_); }
    const Server& server() override { return cluster_.primary().server; }

    void bring_up() override {
        const Micros start = now();
        etcd_.start();
        cluster_.start();
        std::cout << "  three servers stream after " << seconds(now() - start) << std::endl;
        set_up(server(), mix_.body_limit);
        std::vector<std::pair<std::string, int>> servers;
        for (const auto& node : cluster_.nodes())
            servers.emplace_back(node->folder, node->server.port());
        target_.set_cluster(servers, "user=postgres dbname=chaos");
        watch_.emplace(cluster_);
    }

    void disturb() override {
        Strikes strikes(cluster_, *watch_, options_.seed, options_.faults);
        strikes.go_on_until(now() + options_.seconds * kSecond);
        add(strikes.failures());
        strikes_ = strikes.done();
        add(strikes.fired());
    }

    void look_at_rest() override {
        for (const auto& [timeline, takeover] : watch_->takeovers())
            history_.takeovers[timeline] = takeover.since;
        for (const std::string& both : watch_->doubles())
            at_rest_.push_back({5, "two primaries of one timeline: " + both});
        watch_.reset();
        if (mode_ == Mode::Async) history_.forgetful_failovers = takeovers_of(history_);
        if (!are_equal()) at_rest_.push_back({20, "the nodes do not become equal"});
        for (const auto& node : cluster_.nodes()) {
            const bool primary = node.get() == &cluster_.primary();
            add(primary ? check_at_rest(node->server) : check_standby(node->server));
            expect_none(*node, "effects without their record", kEffectsAlone);
            expect_none(*node, "results without their effect", records_alone());
        }
    }

    // Sweepers are still at work, so it may take several attempts.
    bool are_equal() {
        for (const Micros deadline = now() + kUntilEqual; now() < deadline;
             rest(200 * kMillisecond)) {
            std::set<std::string> contents;
            for (const auto& node : cluster_.nodes())
                contents.insert(node->server.value(kContents));
            if (contents.size() == 1) return true;
        }
        return false;
    }

    void expect_none(const Node& node, const std::string& what, const std::string& query) {
        const std::string count = node.server.value(query);
        if (count != "0") at_rest_.push_back({14, "on " + node.name + " " + count + " " + what});
    }

    void print_more() const override {
        print_strikes(strikes_, acknowledgements(history_));
        std::cout << "  rewound: " << cluster_.rewinds() << " times\n";
        print_losses(history_);
    }

    const Mode mode_;
    Etcd etcd_;
    Cluster cluster_;
    std::optional<Watch> watch_;
    std::vector<Strike> strikes_;
};

}  // namespace

Conclusion run_failover(const Options& options) {
    return FailoverRun(options).play();
}

}  // namespace idem::chaos
