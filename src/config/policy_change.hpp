// Changing a policy: the previous memory is recorded, for requests sent before.
#pragma once

#include "config/policy_table.hpp"

namespace idem::config {

// The memory of the scopes to which each row has a rank, if these rows are all policies; a rank of
// 0: the row does not hold there. The highest rank decides; dropped rows ranked above it give the
// past. `without`: ignore that row.
using Rank = std::size_t (*)(std::string_view pattern, std::string_view scopes);
core::Memory memory_of(const PolicyRows& policies, Rank rank, std::string_view scopes,
                       const PolicyRow* without = nullptr);

// Each makes other changes of policies wait until this transaction ends. An error (42501) if the
// policy in force does not let the current user change it: policy_guard.hpp.

struct ChangeTerms {
    bool may_replace;
    bool has_reason;  // what weakens a policy needs one: policy_weakening.hpp
};

// `row` has the options, all of them valid. False, and nothing is written, if the policy with this
// pattern has them already. An error (42710) if it has others, unless they may be replaced.
bool set_policy(PolicyRow* row, const ChangeTerms& terms);

// Reads the policy with this pattern, to change it. False if there is none.
bool policy_to_change(text* pattern, PolicyRow* row);

// False if there is no such policy.
bool drop_policy(text* pattern, bool has_reason);

}  // namespace idem::config
