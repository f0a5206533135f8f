#include "faults.hpp"

namespace payments {

std::uint64_t draw(std::uint64_t seed, int n, std::uint64_t purpose) {
    std::uint64_t z = seed + 0x9e3779b97f4a7c15 * (static_cast<std::uint64_t>(n) * 8 + purpose);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

Fault plan_fault(std::uint64_t seed, int line, int percent) {
    constexpr Fault kFaults[] = {Fault::Unheard, Fault::Crashed, Fault::Impatient};
    if (draw(seed, line, 1) % 100 >= static_cast<std::uint64_t>(percent)) return Fault::None;
    return kFaults[draw(seed, line, 2) % 3];
}

}  // namespace payments
