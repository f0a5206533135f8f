#include "failover/run.hpp"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <random>

#include "check/branches.hpp"
#include "check/checker.hpp"
#include "failover/strikes.hpp"
#include "run/database.hpp"
#include "run/load.hpp"
#include "run/report.hpp"

namespace idem::chaos {
namespace {

constexpr Micros kPatience = 4 * kSecond;  // of clients
constexpr Micros kUntilEqual = 60 * kSecond;

// What must be the same everywhere, as one value.
constexpr const char* kContents = R"(
SELECT md5(string_agg(lines, '|' ORDER BY name)) FROM (
    SELECT 'record', string_agg(r::text, ';' ORDER BY r::text) FROM idempotency.record r UNION ALL
    SELECT 'effect', string_agg(r::text, ';' ORDER BY r::text) FROM chaos.effect r UNION ALL
    SELECT 'part', string_agg(r::text, ';' ORDER BY r::text) FROM chaos.part r UNION ALL
    SELECT 'look', string_agg(r::text, ';' ORDER BY r::text) FROM chaos.look r) AS all_rows (name, lines)
)";

// Keys that one transaction uses and nobody forgets; and results that do not end within the run.
// What idem_execute has failed at has left nothing, and neither has who did not come back.
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

// The longest time without an acknowledgement that has to do with a strike.
Micros gap_of(const Strike& strike, const std::vector<Micros>& moments) {
    Micros longest = 0;
    for (std::size_t i = 1; i < moments.size(); ++i)
        if (moments[i] >= strike.from && moments[i - 1] <= strike.whole)
            longest = std::max(longest, moments[i] - moments[i - 1]);
    return longest;
}

class FailoverRun {
  public:
    explicit FailoverRun(const Options& options)
        : options_(options),
          mode_(mode_of(options.patroni)),
          cluster_(options.folder, options.async_as_sync ? Mode::Async : mode_, options.settings) {
        if (options_.seed == 0) options_.seed = std::random_device{}() | 1u;
        if (options_.keys > 0) mix_.hot_keys = options_.keys;
        mix_.longest_lease = 2 * kSecond;
        mix_.cold_every = 2;
        mix_.pace = 25 * kMillisecond;
        // Sessions would look in vain for what is prepared on a server that is lost.
        mix_.prepare = false;
        options_.faults.erase(
            std::remove(options_.faults.begin(), options_.faults.end(), "default"),
            options_.faults.end());
    }

    Conclusion play() {
        std::cout << "chaos: Patroni, mode " << name_of(mode_) << ", seed " << options_.seed << ", "
                  << options_.sessions << " sessions, " << options_.seconds << " s" << std::endl;
        const Micros start = now();
        cluster_.start();
        std::cout << "  three servers stream after " << seconds(now() - start) << std::endl;
        set_up(cluster_.primary().server, mix_.body_limit);
        mix_.same_statement = has_same_statement(cluster_.primary().server);
        find_servers();
        work();
        history_.scopes = scopes();
        read_work(cluster_.primary().server, false, &history_);
        if (mode_ == Mode::Async) history_.forgetful_failovers = takeovers_of(history_);
        look_at_nodes();
        return conclude(start);
    }

  private:
    void find_servers() {
        std::vector<std::pair<std::string, int>> servers;
        for (const auto& node : cluster_.nodes())
            servers.emplace_back(node->folder, node->server.port());
        target_.set_cluster(servers, "user=postgres dbname=chaos");
    }

    void work() {
        const Watch watch(cluster_);
        Load load(target_, mix_, options_, Habits{true, kPatience, options_.trusts_warnings}, 0);
        Strikes strikes(cluster_, watch, options_.seed, options_.faults);
        load.work([&] { strikes.go_on_until(now() + options_.seconds * kSecond); });
        add(load.take_calls());
        await_end_of_leases(cluster_.primary().server);
        add(load.look_at_all(history_.calls));
        add(load.take_calls());
        for (const auto& [timeline, takeover] : watch.takeovers())
            history_.takeovers[timeline] = takeover.since;
        for (const std::string& both : watch.doubles())
            at_rest_.push_back({5, "two primaries of one timeline: " + both});
        add(strikes.failures());
        strikes_ = strikes.done();
        fired_ = strikes.fired();
    }

    void add(std::vector<Call> calls) {
        history_.calls.insert(history_.calls.end(), std::make_move_iterator(calls.begin()),
                              std::make_move_iterator(calls.end()));
    }
    void add(const std::vector<Violation>& violations) {
        at_rest_.insert(at_rest_.end(), violations.begin(), violations.end());
    }

    // ---- every node ----

    void look_at_nodes() {
        if (!are_equal()) at_rest_.push_back({20, "the nodes do not become equal"});
        for (const auto& node : cluster_.nodes()) {
            const bool primary = node.get() == &cluster_.primary();
            add(primary ? check_at_rest(node->server) : check_standby(node->server));
            expect_none(*node, "effects without their record", kEffectsAlone);
            expect_none(*node, "results without their effect", records_alone());
        }
    }

    // Sweepers still work, so it may take several looks.
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

    // ---- report ----

    Conclusion conclude(Micros start) {
        Judgement judgement = judge(history_);
        judgement.violations.insert(judgement.violations.begin(), at_rest_.begin(), at_rest_.end());
        const Hits hits = count_hits(history_);
        print_report(history_, fired_, hits);
        print_strikes();
        print_losses(history_);
        print_verdict(judgement);
        std::cout << "  time: " << (now() - start) / kSecond << " s" << std::endl;
        return conclude_run(judgement, hits, history_, options_,
                            std::string("patroni-") + name_of(mode_));
    }

    void print_strikes() const {
        const std::vector<Micros> moments = acknowledgements(history_);
        std::cout << "  fault        primary  taken over  nothing acknowledged  back\n";
        for (const Strike& strike : strikes_) {
            const bool taken = !strike.successor.empty();
            char line[128];
            (void)std::snprintf(line, sizeof line, "  %-12s %s %-2s    %10s  %20s  %s",
                                strike.kind.c_str(), strike.victim.c_str(),
                                strike.successor.c_str(),
                                taken ? seconds(strike.taken_over - strike.from).c_str() : "-",
                                seconds(gap_of(strike, moments)).c_str(),
                                seconds(strike.whole - strike.undone).c_str());
            std::cout << line << "\n";
        }
        std::cout << "  rewound: " << cluster_.rewinds() << " times\n";
    }

    Options options_;
    const Mode mode_;
    Cluster cluster_;
    Target target_;
    Mix mix_;
    History history_;
    std::vector<Strike> strikes_;
    std::map<std::string, int> fired_;
    std::vector<Violation> at_rest_;
};

}  // namespace

Conclusion run_failover(const Options& options) {
    return FailoverRun(options).play();
}

}  // namespace idem::chaos
