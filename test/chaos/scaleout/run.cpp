#include "scaleout/run.hpp"

#include <algorithm>
#include <iostream>
#include <random>

#include "check/checker.hpp"
#include "run/database.hpp"
#include "run/load.hpp"
#include "run/report.hpp"
#include "run/tables.hpp"
#include "scaleout/cluster_faults.hpp"

namespace idem::chaos {
namespace {

using Lane = ClusterFaults::Lane;

// What Citus does not promise, or cannot do, is not asked for: PREPARE TRANSACTION of users, and
// SERIALIZABLE across nodes and moves.
Mix mix_of(const Options& options) {
    Mix mix;
    mix.longest_lease =
        std::clamp<Micros>(options.seconds * kSecond / 5, kSecond / 2, 10 * kSecond);
    if (options.keys > 0) mix.hot_keys = options.keys;
    mix.harm = !options.faults.empty();
    mix.prepare = false;
    mix.sums = false;
    mix.distributed = true;
    mix.hold = false;
    mix.decided_every = 0;
    mix.tenants = 8;
    return mix;
}

class ScaleoutRun {
  public:
    explicit ScaleoutRun(const Options& options)
        : options_(options), citus_(target_), mix_(mix_of(options)) {
        if (options_.seed == 0) options_.seed = std::random_device{}() | 1u;
    }

    Conclusion play() {
        std::cout << "chaos: Citus, seed " << options_.seed << ", " << options_.sessions
                  << " sessions, " << options_.seconds << " s" << std::endl;
        const Micros start = now();
        citus_.set_up();
        const Server& coordinator = citus_.coordinator().server;
        set_up(coordinator, mix_.body_limit);
        for (const std::string& sql : distributed_work()) Citus::ask(coordinator, sql);
        mix_.same_statement = has_same_statement(coordinator);
        work();
        history_.scopes = scopes();
        // A lease counts from PREPARE, and others see the row when all nodes have committed.
        history_.early_rows = true;
        read_work(coordinator, false, &history_);
        look_at_nodes();
        return conclude(start);
    }

  private:
    void work() {
        Habits habits;
        habits.any_node = true;
        Load load(target_, mix_, options_, habits, 0);
        load.work([this] { disturb(); });
        add(load.take_calls());
        fired_.insert(load.resets().begin(), load.resets().end());
        citus_.await_rest();
        await_end_of_leases(citus_.coordinator().server);
        add(load.look_at_all(history_.calls));
        add(load.take_calls());
    }

    void disturb() {
        std::vector<std::unique_ptr<ClusterFaults>> injectors;
        for (const Lane lane : {Lane::Connections, Lane::Servers, Lane::Operators, Lane::Routine})
            injectors.push_back(std::make_unique<ClusterFaults>(
                citus_, target_, mix_, options_.seed, lane, options_.faults));
        for (auto& injector : injectors) injector->start();
        rest(options_.seconds * kSecond);
        for (auto& injector : injectors) injector->stop();
        for (const auto& injector : injectors) {
            fired_.insert(injector->fired().begin(), injector->fired().end());
            add(injector->found());
        }
    }

    void look_at_nodes() {
        for (const Citus::Worker* node : citus_.members())
            for (const Violation& violation : check_node(node->server))
                at_rest_.push_back({violation.invariant, node->name + ": " + violation.what});
    }

    void add(std::vector<Call> calls) {
        history_.calls.insert(history_.calls.end(), std::make_move_iterator(calls.begin()),
                              std::make_move_iterator(calls.end()));
    }
    void add(const std::vector<Violation>& violations) {
        at_rest_.insert(at_rest_.end(), violations.begin(), violations.end());
    }

    Conclusion conclude(Micros start) {
        Judgement judgement = judge(history_);
        judgement.violations.insert(judgement.violations.begin(), at_rest_.begin(), at_rest_.end());
        const Hits hits = count_hits(history_);
        print_report(history_, fired_, hits);
        print_nodes(history_);
        print_verdict(judgement);
        std::cout << "  time: " << (now() - start) / kSecond << " s" << std::endl;
        return conclude_run(judgement, hits, history_, options_, "citus");
    }

    Options options_;
    Target target_;
    Citus citus_;
    Mix mix_;
    History history_;
    std::vector<Violation> at_rest_;
    std::map<std::string, int> fired_;
};

}  // namespace

Conclusion run_scaleout(const Options& options) {
    return ScaleoutRun(options).play();
}

}  // namespace idem::chaos
