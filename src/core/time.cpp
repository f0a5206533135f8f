#include "core/time.hpp"

#include <algorithm>
#include <limits>

namespace idem::core {
namespace {

constexpr std::int64_t kRest = 9;
constexpr std::int64_t kTolerated = 300 * kSecond;
// No batch takes that long; the product below must not overflow.
constexpr std::int64_t kLongestWork = 3600 * kSecond;

}  // namespace

std::int64_t interval_micros(std::int32_t months, std::int32_t days, std::int64_t micros) noexcept {
    // Whole days of `micros` join the days first: two large fields of opposite sign cancel out
    // before an overflow.
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

std::int64_t backoff_ceiling(std::int64_t base, std::int64_t cap, int attempt) noexcept {
    if (base <= 0 || cap <= 0) return 0;
    const int doublings = std::max(attempt, 1) - 1;
    // Compares the cap with base: base * 2^doublings itself may overflow.
    if (doublings >= 63 || base > cap >> doublings) return cap;
    return base << doublings;
}

std::int64_t jittered(std::int64_t ceiling, double fraction) noexcept {
    // Written so that NaN also gives zero.
    if (ceiling <= 0 || !(fraction > 0.0)) return 0;
    if (fraction >= 1.0) return ceiling;
    // Above 2^53 the product may be rounded up past the ceiling.
    return std::min(static_cast<std::int64_t>(static_cast<double>(ceiling) * fraction), ceiling);
}

std::int64_t rest_after(std::int64_t worked, std::int64_t behind) noexcept {
    const std::int64_t work = std::clamp(worked, std::int64_t{0}, kLongestWork);
    const std::int64_t shrunk = std::max(behind, kTolerated) / kSecond;
    return kRest * work * (kTolerated / kSecond) / shrunk;
}

}  // namespace idem::core
