// The result of a run.
#pragma once

#include "check/checker.hpp"
#include "run/clock_watch.hpp"
#include "run/options.hpp"

namespace idem::chaos {

// A claim that was open when a fault ended its transaction, by the call during which it came.
struct Hits {
    std::map<std::string, int> by_step;
    int total = 0;
};

Hits count_hits(const History& history);

void print_report(const History& history, const std::map<std::string, int>& fired,
                  const Hits& hits);
// For a cluster whose nodes are all asked: the answers of each. A node that joins again counts as
// another.
void print_nodes(const History& history);
// For a cluster: commits that were acknowledged, and lost.
void print_losses(const History& history);
void print_verdict(const Judgement& judgement);

// The exit status. Undecided is neither of the first two: the search for an order was cut off.
// WrongClock is either of these two, in a run during which the machine's clock went back.
enum class Conclusion { Sound = 0, Broken = 1, DoesNotCount = 3, Undecided = 4, WrongClock = 5 };

Conclusion conclusion_of(const Judgement& judgement);

// The judgement of a run. Unless the run was sound, keeps its history and prints where; without a
// folder it keeps none.
Conclusion conclude_run(const Judgement& judgement, const Hits& hits, const History& history,
                        const StepsBack& clock, const Options& options, const std::string& name);

}  // namespace idem::chaos
