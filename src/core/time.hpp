// Spans of time, and the ranges in which each makes sense.
#pragma once

#include <cstdint>

namespace idem::core {

inline constexpr std::int64_t kMillisecond = 1000;
inline constexpr std::int64_t kSecond = 1000 * kMillisecond;
inline constexpr std::int64_t kDay = 86400 * kSecond;
// Far enough for any retention, near enough that now + span is always a valid timestamp.
inline constexpr std::int64_t kLongest = 36525 * kDay;
// The lock manager counts milliseconds in an int; a day is more than anyone should wait.
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

SpanFault check_span(std::int64_t micros, SpanRange range) noexcept;

}  // namespace idem::core
