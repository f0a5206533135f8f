// Pauses between attempts: exponential, capped, with full jitter.
#pragma once

#include <cstdint>

namespace idem::core {

// The longest pause after `attempt` (1 for the first): base * 2^(attempt - 1), at most cap, without
// overflow. Microseconds; negative input counts as zero.
std::int64_t backoff_ceiling(std::int64_t base, std::int64_t cap, int attempt) noexcept;

// Full jitter: a pause between 0 and the ceiling, `fraction` being a random number in [0, 1).
// Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
std::int64_t jittered(std::int64_t ceiling, double fraction) noexcept;

}  // namespace idem::core
