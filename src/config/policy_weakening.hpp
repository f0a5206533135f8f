// Changes of a policy that protect less than the policy in force: core::kSafeguards.
#pragma once

#include "config/policy_table.hpp"

namespace idem::config {

// Called before the policy with this pattern becomes `next`, or is dropped (nullptr). `policies`
// are all policies, locked. A WARNING for each option of the policy in force that gets weaker for
// the scopes of the pattern, also because a more specific pattern takes them. An error (22004)
// without a reason.
void check_weakening(const PolicyRows& policies, std::string_view pattern, const PolicyRow* next,
                     bool has_reason);

}  // namespace idem::config
