// Invariant 23: a transaction that is granted a key sees all earlier work, or is refused (40001).
// So, if work depends on what it sees, a generation has each of its parts once (1).
#pragma once

#include "check/rules.hpp"

namespace idem::chaos {

std::vector<Violation> check_sight(const History& history);

}  // namespace idem::chaos
