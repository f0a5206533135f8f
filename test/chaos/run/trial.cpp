#include "run/trial.hpp"

#include <algorithm>
#include <iostream>
#include <random>

#include "run/database.hpp"

namespace idem::chaos {

Trial::Trial(const Options& options) : options_(options) {
    if (options_.seed == 0) options_.seed = std::random_device{}() | 1u;
    if (options_.keys > 0) mix_.hot_keys = options_.keys;
    mix_.longest_lease =
        std::clamp<Micros>(options_.seconds * kSecond / 5, kSecond / 2, 10 * kSecond);
}

Conclusion Trial::play() {
    std::cout << "chaos: " << title() << ", seed " << options_.seed << ", " << options_.sessions
              << " sessions, " << options_.seconds << " s" << std::endl;
    ClockWatch clock;
    const Micros start = now();
    bring_up();
    mix_.same_statement = has_same_statement(server());
    work();
    history_.scopes = scopes();
    read_work(server(), mix_.foreign, &history_);
    look_at_rest();
    return conclude(start, clock.stop());
}

void Trial::work() {
    Load load(target_, mix_, options_, habits_, pooled_every_);
    load.work([this] { disturb(); });
    add(load.take_calls());
    add(load.resets());
    come_to_rest();
    // After every lease.
    await_end_of_leases(server());
    add(load.look_at_all(history_.calls));
    add(load.take_calls());
}

void Trial::add(std::vector<Call> calls) {
    history_.calls.insert(history_.calls.end(), std::make_move_iterator(calls.begin()),
                          std::make_move_iterator(calls.end()));
}

void Trial::add(const std::vector<Violation>& violations) {
    at_rest_.insert(at_rest_.end(), violations.begin(), violations.end());
}

Conclusion Trial::conclude(Micros start, const StepsBack& clock) {
    Judgement judgement = judge(history_);
    judgement.violations.insert(judgement.violations.begin(), at_rest_.begin(), at_rest_.end());
    const Hits hits = count_hits(history_);
    print_report(history_, fired_, hits);
    print_more();
    print_verdict(judgement);
    std::cout << "  time: " << (now() - start) / kSecond << " s" << std::endl;
    return conclude_run(judgement, hits, history_, clock, options_, name());
}

}  // namespace idem::chaos
