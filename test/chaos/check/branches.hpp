// Servers that take over from each other, each on a timeline of its own. A primary of the past may
// go on serving, as long as nobody stops it: what it is asked then is no part of the cluster's
// history, but a branch that ends. Clients may be told there that a key is free, or in progress,
// and of commits that only that server knows. They must not be told that anything of theirs is
// committed, where commits wait for a standby; and nothing of it may be there in the end.
#pragma once

#include "check/rules.hpp"

namespace idem::chaos {

// Without the branches: the calls of each timeline until the next one begins. Transactions that are
// open then are rolled back at that moment.
History main_line(const History& history);

// When one primary took over from another.
std::vector<Micros> takeovers_of(const History& history);

// What holds of the branches as well (invariants 2, 4, 6, 14, 19), by the calls of all timelines.
std::vector<Violation> check_past(const History& history);

// What clients were told of transactions that have an effect, and what became of them.
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

// Of a commit that the standby need not have got; the class is that of warnings.
inline constexpr const char* kNotReplicated = "01000";

}  // namespace idem::chaos
