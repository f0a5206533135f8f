// Invariant 23: whoever is granted a key sees what came before, or is not granted it (40001); and
// so, with work that depends on what it sees, a generation has each of its parts once (1).
#pragma once

#include "check/rules.hpp"

namespace idem::chaos {

std::vector<Violation> check_sight(const History& history);

}  // namespace idem::chaos
