// What a run has come to.
#pragma once

#include "check/checker.hpp"

namespace idem::chaos {

// A claim that was open when a fault ended its transaction, by the call during which it came.
struct Hits {
    std::map<std::string, int> by_step;
    int total = 0;
};

Hits count_hits(const History& history);

void print_report(const History& history, const std::map<std::string, int>& fired,
                  const Hits& hits);
// Of a cluster all of whose nodes are asked: what each has answered. Who joins again is another
// node.
void print_nodes(const History& history);
// Of a cluster: what was acknowledged, and lost.
void print_losses(const History& history);
void print_verdict(const Judgement& judgement);

// Keeps a history that was found wrong, and says where. Without a folder it does not.
void keep_history(const History& history, const std::string& folder, const std::string& name,
                  std::uint64_t seed);

}  // namespace idem::chaos
