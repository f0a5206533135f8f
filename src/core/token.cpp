#include "core/token.hpp"

#include <algorithm>
#include <limits>

namespace idem::core {
namespace {

constexpr std::int64_t kOneMillisecond = std::int64_t{1} << kTokenRandomBits;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLastMillisecond = kLargest >> kTokenRandomBits;  // in the year 2248

}  // namespace

// Where the clock is behind, the last token's time is used, and one millisecond more if the random
// bits alone don't lead past it. The low bits stay random: 'previous + 1' would be handed out twice
// when a failover forgets the claim that got it first.
std::int64_t next_token(std::int64_t unix_millis, std::uint32_t random,
                        std::int64_t previous) noexcept {
    const std::int64_t last = std::max<std::int64_t>(previous, 0);
    const std::int64_t millis =
        std::clamp<std::int64_t>(unix_millis, last >> kTokenRandomBits, kLastMillisecond);
    const std::int64_t token = millis * kOneMillisecond + random % kOneMillisecond;
    if (token > last) return token;
    return token > kLargest - kOneMillisecond ? kLargest : token + kOneMillisecond;
}

}  // namespace idem::core
