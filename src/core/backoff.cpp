#include "core/backoff.hpp"

#include <algorithm>

namespace idem::core {

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

}  // namespace idem::core
