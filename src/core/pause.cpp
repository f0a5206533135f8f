#include "core/pause.hpp"

#include <algorithm>

#include "core/time.hpp"

namespace idem::core {
namespace {

constexpr std::int64_t kRest = 9;
constexpr std::int64_t kTolerated = 300 * kSecond;
// No batch takes that long; the product below must not overflow.
constexpr std::int64_t kLongestWork = 3600 * kSecond;

}  // namespace

std::int64_t backoff_ceiling(std::int64_t base, std::int64_t cap, int attempt) noexcept {
    if (base <= 0 || cap <= 0) return 0;
    const int doublings = std::max(attempt, 1) - 1;
    // Asking the cap backwards: base * 2^doublings itself may not fit.
    if (doublings >= 63 || base > cap >> doublings) return cap;
    return base << doublings;
}

std::int64_t jittered(std::int64_t ceiling, double fraction) noexcept {
    // Written so that NaN counts as zero too.
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
