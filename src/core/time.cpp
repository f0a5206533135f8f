#include "core/time.hpp"

#include <algorithm>
#include <limits>

namespace idem::core {

std::int64_t interval_micros(std::int32_t months, std::int32_t days, std::int64_t micros) noexcept {
    // Whole days of `micros` join the days first, so that two large fields of opposite sign cancel
    // out before anything can overflow.
    const std::int64_t all_days = std::int64_t{months} * 30 + days + micros / kDay;
    std::int64_t sum = 0;
    if (!__builtin_mul_overflow(all_days, kDay, &sum) &&
        !__builtin_add_overflow(sum, micros % kDay, &sum)) {
        return sum;
    }
    using Limits = std::numeric_limits<std::int64_t>;
    return all_days < 0 ? Limits::min() : Limits::max();
}

std::int64_t later(std::int64_t moment, std::int64_t span, Clock clock) noexcept {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(moment, span, &sum)) return span > 0 ? clock.last : clock.first;
    return std::clamp(sum, clock.first, clock.last);
}

SpanFault check_span(std::int64_t micros, SpanRange range) noexcept {
    if (micros < 0) return SpanFault::Negative;
    if (micros == 0 && !range.zero_allowed) return SpanFault::Zero;
    return micros > range.longest ? SpanFault::TooLong : SpanFault::None;
}

}  // namespace idem::core
