#include "core/pace.hpp"

#include <algorithm>

#include "core/duration.hpp"

namespace idem::core {

namespace {

constexpr std::int64_t kRest = 9;
constexpr std::int64_t kTolerated = 300 * kSecond;
// No batch takes that long; the product below must not overflow.
constexpr std::int64_t kLongestWork = 3600 * kSecond;

}  // namespace

std::int64_t rest_after(std::int64_t worked, std::int64_t behind) noexcept {
    const std::int64_t work = std::clamp(worked, std::int64_t{0}, kLongestWork);
    const std::int64_t shrunk = std::max(behind, kTolerated) / kSecond;
    return kRest * work * (kTolerated / kSecond) / shrunk;
}

}  // namespace idem::core
