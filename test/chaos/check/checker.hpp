// All checks of a history.
#pragma once

#include "check/rules.hpp"

namespace idem::chaos {

struct Judgement {
    std::vector<Violation> violations;
    std::vector<std::string> undecided;  // keys that the search for an order has given up
    std::size_t keys = 0;
    std::size_t steps = 0;
};

Judgement judge(const History& history);

}  // namespace idem::chaos
