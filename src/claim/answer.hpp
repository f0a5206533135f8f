// What the protocol answers to a caller.
#pragma once

#include "core/decision.hpp"

#include "store/record.hpp"

namespace idem::claim {

struct Answer {
    std::optional<core::Outcome> outcome;  // none when only asked for information
    core::Execution claim;                 // which kind of execution, if it is one
    bool has_record;                       // false: nothing but the identity is known
    store::Record record;
    std::int64_t retry_after;  // microseconds; 0: not known
};

}  // namespace idem::claim
