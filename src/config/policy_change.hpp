// Changing a policy: what held before is remembered, for requests that were sent before.
#pragma once

#include "config/policy_table.hpp"

namespace idem::config {

// Both make other changes of policies wait until this transaction ends.

// `row` has everything but kSince and what follows.
void set_policy(PolicyRow* row);

// False if there is no such policy.
bool drop_policy(text* pattern);

}  // namespace idem::config
