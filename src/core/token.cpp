#include "core/token.hpp"

#include <algorithm>
#include <limits>

namespace idem::core {
namespace {

constexpr std::uint32_t kRandomMask = (1U << 16) - 1;

constexpr std::int64_t plus(std::int64_t token, std::int64_t step) noexcept {
    constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
    return token > kLargest - step ? kLargest : token + step;
}

}  // namespace

std::int64_t token_time(std::int64_t now, std::int64_t last) noexcept {
    return std::max(now, plus(std::max<std::int64_t>(last, 0), 1));
}

// When the record's own token is ahead of the clock, the step is random. A standby that takes over
// from a server with a faster clock may have missed a claim that got "one more" there, and must not
// grant it again.
std::int64_t next_token(std::int64_t time, std::uint32_t random, std::int64_t previous) noexcept {
    if (time > previous) return time;
    return plus(previous, 1 + std::int64_t{random & kRandomMask});
}

}  // namespace idem::core
