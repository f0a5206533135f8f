// Changing a policy: what held before is remembered, for requests that were sent before.
#pragma once

#include "config/policy_table.hpp"

namespace idem::config {

// How long keys are remembered where these rows are all policies, in the scopes that something fits
// to which each row has a rank: 0 if it does not hold there. The one with the highest rank does,
// and dropped ones above it say what was before. `without`: as if that row were not there.
using Rank = std::size_t (*)(std::string_view pattern, std::string_view scopes);
core::Memory memory_of(const PolicyRows& policies, Rank rank, std::string_view scopes,
                       const PolicyRow* without = nullptr);

// These make other changes of policies wait until this transaction ends. An error (42501) if the
// policy in force does not let the current user change it: policy_guard.hpp.

// `row` has the options, none of which is at fault.
void set_policy(PolicyRow* row);

// What the policy with this pattern says, to be changed. False if there is none.
bool policy_to_change(text* pattern, PolicyRow* row);

// False if there is no such policy.
bool drop_policy(text* pattern);

}  // namespace idem::config
