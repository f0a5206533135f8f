// How long to wait before something is tried again or gone on with: an attempt that has failed, and
// a sweeper's next batch. Microseconds; negative input counts as zero.
#pragma once

#include <cstdint>

namespace idem::core {

// ---- between attempts: exponential, capped, with full jitter ----

// The longest pause after `attempt` (1 for the first): base * 2^(attempt - 1), at most cap, without
// overflow.
std::int64_t backoff_ceiling(std::int64_t base, std::int64_t cap, int attempt) noexcept;

// Full jitter: a pause between 0 and the ceiling, `fraction` being a random number in [0, 1).
// Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
std::int64_t jittered(std::int64_t ceiling, double fraction) noexcept;

// ---- between batches ----

// The rest after a batch that took `worked`: nine times as long, so that callers hardly feel that a
// million records expire at once; they are gone in a minute or two. Where more expire than can be
// removed in that way, the oldest that is left becomes older and older: once it is more than five
// minutes older than it was (`behind`), the rest shrinks in proportion, until the sweeper keeps up.
std::int64_t rest_after(std::int64_t worked, std::int64_t behind) noexcept;

}  // namespace idem::core
