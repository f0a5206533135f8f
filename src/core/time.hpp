// Time: spans and the ranges in which each makes sense, the pauses between attempts, a sweeper's
// rest, and tokens, which are times.
#pragma once

#include <cstdint>

namespace idem::core {

inline constexpr std::int64_t kMillisecond = 1000;
inline constexpr std::int64_t kSecond = 1000 * kMillisecond;
inline constexpr std::int64_t kDay = 86400 * kSecond;
// Far enough for any retention, near enough that now + duration is always a valid timestamp.
inline constexpr std::int64_t kLongest = 36525 * kDay;
// The lock manager counts milliseconds in an int; a day is more than anyone should wait.
inline constexpr std::int64_t kLongestWait = kDay;

enum class DurationFault { None, Negative, Zero, TooLong };

struct DurationRange {
    bool zero_allowed;
    std::int64_t longest;
};

inline constexpr DurationRange kTtlRange{false, kLongest};
inline constexpr DurationRange kRetentionRange{false, kLongest};
inline constexpr DurationRange kLeaseRange{false, kLongest};
inline constexpr DurationRange kWaitRange{true, kLongestWait};
inline constexpr DurationRange kRetryRange{true, kLongest};

// An interval's fields as microseconds, a month counted as 30 days and a day as 24 hours.
// Saturates at the ends of int64, where the range check refuses it; infinite intervals (server 17
// and later: all three fields at their extreme) saturate too.
std::int64_t interval_micros(std::int32_t months, std::int32_t days, std::int64_t micros) noexcept;

// A moment and a span, within the moments that a clock can tell: never beyond them, nor around.
struct Clock {
    std::int64_t first;
    std::int64_t last;
};
std::int64_t later(std::int64_t moment, std::int64_t span, Clock clock) noexcept;

DurationFault check_duration(std::int64_t micros, DurationRange range) noexcept;

// ---- pauses between attempts: exponential, capped, with full jitter ----

// The longest pause after `attempt` (1 for the first): base * 2^(attempt - 1), at most cap, without
// overflow. Microseconds; negative input counts as zero.
std::int64_t backoff_ceiling(std::int64_t base, std::int64_t cap, int attempt) noexcept;

// Full jitter: a pause between 0 and the ceiling, `fraction` being a random number in [0, 1).
// Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
std::int64_t jittered(std::int64_t ceiling, double fraction) noexcept;

// ---- how much a sweeper rests ----

// The rest after a batch that took `worked`: nine times as long, so that callers hardly feel that a
// million records expire at once; they are gone in a minute or two. Where more expire than can be
// removed in that way, the oldest that is left becomes older and older: once it is more than five
// minutes older than it was (`behind`), the rest shrinks in proportion, until the sweeper keeps up.
// Microseconds; negative input counts as zero.
std::int64_t rest_after(std::int64_t worked, std::int64_t behind) noexcept;

// ---- fencing tokens ----

// A token is the microseconds since 2000-01-01: a time that one can read, below 2^53 until the year
// 2285, where JavaScript's and JSON's numbers end. Not a sequence: a sequence hands values out
// again after a crash or failover.

// The time that a token is made of: `now`, or one microsecond after the last such time of this
// server (0: there was none), so that it never comes twice, whatever the clock does. Both are
// microseconds since 2000-01-01.
std::int64_t token_time(std::int64_t now, std::int64_t last) noexcept;

// The token that follows a record's `previous` one (0: it has had none): the time, where that is
// greater. Only the low 16 bits of `random` are used, and only where it is not.
std::int64_t next_token(std::int64_t time, std::uint32_t random, std::int64_t previous) noexcept;

}  // namespace idem::core
