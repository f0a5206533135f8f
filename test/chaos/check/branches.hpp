// Servers that take over from each other, each on its own timeline. A former primary may go on
// serving as long as it is not stopped. Calls to it then belong to a branch that ends, not to the
// cluster's history. Clients may be told there that a key is free or in progress, and of commits
// that only that server knows. Where commits wait for a standby, clients must not be told that a
// commit of theirs succeeded, and nothing of it may be there in the end.
#pragma once

#include <functional>

#include "check/rules.hpp"

namespace idem::chaos {

// The history without the branches: the calls of each timeline until the next one begins.
// Transactions that are open then are rolled back at that moment.
History main_line(const History& history);

// Ends the transactions that are open in the calls of a server: they were rolled back when it lost
// its place, or before. `end_of` says when, from the last call of each; kNever: it has its place.
void roll_back_open(std::vector<Call>* calls, const std::function<Micros(const Call&)>& end_of);

// When one primary took over from another.
std::vector<Micros> takeovers_of(const History& history);

// The invariants that also hold on branches (2, 4, 6, 14, 19), by the calls of all timelines.
std::vector<Violation> check_past(const History& history);

// The answers that clients got for transactions with an effect, and the fate of these transactions.
struct Losses {
    std::size_t acknowledged = 0;
    std::size_t acknowledged_and_lost = 0;
    std::size_t of_the_past = 0;  // of the lost: by a primary that had a successor by then
    std::size_t warned = 0;       // committed, but perhaps nowhere else
    std::size_t warned_and_lost = 0;
    std::size_t unanswered = 0;
    std::size_t unanswered_and_lost = 0;
};
Losses count_losses(const History& history);

// When transactions with an effect were acknowledged by the cluster's primary, in order.
std::vector<Micros> acknowledgements(const History& history);

// For a commit that the standby may lack; the class is that of warnings.
inline constexpr const char* kNotReplicated = "01000";

}  // namespace idem::chaos
