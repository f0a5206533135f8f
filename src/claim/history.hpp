// What a policy with keep_history wants to be kept of an attempt that has ended.
#pragma once

#include "config/policy.hpp"
#include "store/attempt.hpp"

namespace idem::claim {

// `record` as the end has left it; without a result, as it was until then. In the transaction that
// ends the attempt, so that an end that is rolled back is none. Nothing where no history is kept.
void keep_attempt(const core::Policy& policy, const store::Record& record, store::AttemptEnd how);

// The attempt that was taken over goes on, for its successor is withdrawn: it may still end.
// Whatever the policy says now.
void take_back_attempt(const store::Record& taken_over);

// With its result.
void keep_ended_attempt(const core::Policy& policy, const store::Record& record);

}  // namespace idem::claim
