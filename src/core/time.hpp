// Spans of time and their valid ranges, and pauses: between attempts, and between batches.
#pragma once

#include <cstdint>

namespace idem::core {

inline constexpr std::int64_t kMillisecond = 1000;
inline constexpr std::int64_t kSecond = 1000 * kMillisecond;
inline constexpr std::int64_t kDay = 86400 * kSecond;
// Longer than any useful retention, and now + span is always a valid timestamp.
inline constexpr std::int64_t kLongest = 36525 * kDay;
// The lock manager counts milliseconds in an int; a day is the longest useful wait.
inline constexpr std::int64_t kLongestWait = kDay;

enum class SpanFault { None, Negative, Zero, TooLong };

struct SpanRange {
    bool zero_allowed;
    std::int64_t longest;
};

inline constexpr SpanRange kTtlRange{false, kLongest};
inline constexpr SpanRange kRetentionRange{false, kLongest};
inline constexpr SpanRange kLeaseRange{false, kLongest};
inline constexpr SpanRange kWaitRange{true, kLongestWait};
inline constexpr SpanRange kRetryRange{true, kLongest};
inline constexpr SpanRange kAgeRange{true, kLongest};

// An interval's fields as microseconds, a month counted as 30 days and a day as 24 hours.
// Saturates at the ends of int64, where the range check refuses it; infinite intervals (server 17
// and later: all three fields at their extreme) saturate too.
std::int64_t interval_micros(std::int32_t months, std::int32_t days, std::int64_t micros) noexcept;

// A moment plus a span, saturated to the moments that a clock can tell.
struct Clock {
    std::int64_t first;
    std::int64_t last;
};
std::int64_t later(std::int64_t moment, std::int64_t span, Clock clock) noexcept;

SpanFault check_span(std::int64_t micros, SpanRange range) noexcept;

// ---- pauses between attempts: exponential, capped, with full jitter ----

// The longest pause after `attempt` (1 for the first): base * 2^(attempt - 1), at most cap, without
// overflow. Microseconds; negative input counts as zero, here and below.
std::int64_t backoff_ceiling(std::int64_t base, std::int64_t cap, int attempt) noexcept;

// Full jitter: a pause between 0 and the ceiling, `fraction` being a random number in [0, 1).
// Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
std::int64_t jittered(std::int64_t ceiling, double fraction) noexcept;

// ---- a sweeper's rest between batches ----

// The rest after a batch that took `worked`: nine times as long. So callers hardly feel that a
// million records expire at once; those are gone in a minute or two. Where more records expire than
// can be removed at this pace, the backlog ages. Once its age has grown by more than five minutes
// (`behind`), the rest shrinks in proportion, until the sweeper keeps up.
std::int64_t rest_after(std::int64_t worked, std::int64_t behind) noexcept;

}  // namespace idem::core
