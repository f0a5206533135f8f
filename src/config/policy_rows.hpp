// What the rows of idempotency.policy say, one by one and together.
#pragma once

#include "core/memory.hpp"
#include "core/policy.hpp"

#include "config/policy_table.hpp"

namespace idem::config {

std::string_view text_at(const PolicyRow& row, PolicyColumn column);

inline std::string_view pattern_of(const PolicyRow& row) {
    return text_at(row, kPattern);
}

// A policy that is gone says no more than for how long keys were remembered under it.
inline bool is_dropped(const PolicyRow& row) {
    return DatumGetBool(row.values[kDropped]);
}

// The row's values over the settings. The row can be gone by.
core::Policy values_of(const PolicyRow& row);

// How long keys are remembered where these rows are all policies, in the scopes that something fits
// to which each row has a rank: 0 if it does not hold there. The one with the highest rank does,
// and dropped ones above it say what was before. `without`: as if that row were not there.
using Rank = std::size_t (*)(std::string_view pattern, std::string_view scopes);
core::Memory memory_of(const PolicyRows& policies, Rank rank, std::string_view scopes,
                       const PolicyRow* without = nullptr);

}  // namespace idem::config
