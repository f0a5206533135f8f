// One run: sessions and faults for a while, then rest, a last look at everything, and judgement.
#pragma once

#include "run/options.hpp"

namespace idem::chaos {

enum class Conclusion { Sound = 0, Broken = 1, DoesNotCount = 3 };

Conclusion run(const Options& options);

}  // namespace idem::chaos
