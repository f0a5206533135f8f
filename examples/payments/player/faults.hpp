// Which fault of a client meets which line.
#pragma once

#include <cstdint>

namespace payments {

// Unheard: the client hangs up when the answer arrives, and has not read it. Crashed: it is killed
// at that moment. Impatient: it hangs up while the service is at work.
enum class Fault { None, Unheard, Crashed, Impatient };

// The same for the same seed and line, so that a run can be repeated.
Fault plan_fault(std::uint64_t seed, int line, int percent);

// SplitMix64, the same everywhere, which std::uniform_int_distribution is not. `purpose` below 8.
std::uint64_t draw(std::uint64_t seed, int n, std::uint64_t purpose);

}  // namespace payments
