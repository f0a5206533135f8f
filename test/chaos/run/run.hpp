// One run: sessions and faults for a while, then rest, a last look at everything, and judgement.
#pragma once

#include "run/report.hpp"

namespace idem::chaos {

Conclusion run(const Options& options);

}  // namespace idem::chaos
