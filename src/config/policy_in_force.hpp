// The options in force for a scope, each with its origin: for people to read.
#pragma once

#include "config/policy_table.hpp"

namespace idem::config {

enum class Source { Argument, Policy, Setting, Default };

const char* word_of(Source source);

struct OptionInForce {
    const char* option;
    core::OptionType type;
    // As text, as the server would spell a value of that type. nullptr: no limit, no role, or (of
    // final_errors) a rule that no list can express.
    const char* value;
    Source source;
    const char* origin;  // the pattern of the policy, or the name of the setting; else nullptr
};

inline constexpr int kInForce = kOptions - 1;  // all but the pattern

// In the order of core::kPolicyColumns.
struct PolicyInForce {
    OptionInForce options[kInForce];
};

// The call's own arguments, in microseconds.
struct CallSays {
    std::optional<std::int64_t> ttl;
    std::optional<std::int64_t> lease;
    std::optional<std::int64_t> wait;
};

// As of now; in the current memory context. The policy's role is not checked, so callers check who
// may ask. An error (55000) if the scope's policy is invalid.
PolicyInForce policy_in_force(std::string_view scope, const CallSays& call);

}  // namespace idem::config
