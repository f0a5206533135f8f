// The invariants that can be read directly off a whole history. They see less than the search for
// an order. But each covers one promise, and an error in the model cannot hide its violation.
#pragma once

#include "check/history.hpp"

namespace idem::chaos {

struct Violation {
    int invariant = 0;  // of reliability.md
    std::string what;
};

std::vector<Violation> check_effects(const History& history);  // 1, 11, 14
std::vector<Violation> check_answers(const History& history);  // 2, 3, 10
std::vector<Violation> check_tokens(const History& history);   // 6
std::vector<Violation> check_grants(const History& history);   // 5
std::vector<Violation> check_errors(const History& history);   // 19
std::vector<Violation> check_waits(const History& history);    // 17
std::vector<Violation> check_foreign(const History& history);  // 14
std::vector<Violation> check_closed(const History& history);   // 24

// Invariant 25; of a history without failovers that lose commits.
std::vector<Violation> check_forgotten(const History& history);

}  // namespace idem::chaos
