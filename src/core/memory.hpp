// How long keys are remembered, and have been: what a request that says when it was first sent is
// judged by.
#pragma once

#include <cstdint>

namespace idem::core {

// Microseconds; moments of one clock. Before `since` keys may have been remembered for as short as
// `before`; kUnchanged: for as long as now.
struct Memory {
    std::int64_t span;
    std::int64_t since;
    std::int64_t before;
};

inline constexpr std::int64_t kUnchanged = INT64_MIN;

// A change counts that much later, for the transaction that makes it takes some time to commit, and
// until then others go by what was before.
inline constexpr std::int64_t kTimeToCommit = 60'000'000;

constexpr Memory unchanged_memory(std::int64_t span) noexcept {
    return {span, kUnchanged, span};
}

// The shortest memory that the key of a request can have had since it was first sent.
std::int64_t memory_since(const Memory& memory, std::int64_t first_sent) noexcept;

// False once whatever was sent before the change is refused for its age alone.
bool past_matters(const Memory& memory, std::int64_t now) noexcept;

// With what else is known of the past.
Memory with_past(const Memory& memory, const Memory& other) noexcept;

// When keys are remembered for `span` from now on.
Memory changed_memory(const Memory& old, std::int64_t span, std::int64_t now) noexcept;

}  // namespace idem::core
