// The right to change a policy: EXECUTE is not enough where the policy in force closes a scope or
// encrypts it.
#pragma once

#include "config/policy_table.hpp"

namespace idem::config {

// How well a policy fits all scopes of a pattern; 0: not at all, or it is dropped.
std::size_t rank_for(const PolicyRow& row, std::string_view pattern);

// Whether it is the policy with exactly this pattern.
bool is_live(const PolicyRow& row, std::string_view pattern);

// Called before the policy with this pattern becomes `next`, or is dropped (nullptr). `rows` are
// all policies, locked. An error (42501) unless the current user owns table idempotency.policy, or
// is a member of the role that the policy in force names.
void check_may_change(const PolicyRows& policies, std::string_view pattern, const PolicyRow* next);

}  // namespace idem::config
