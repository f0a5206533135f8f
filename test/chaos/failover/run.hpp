// One run on a cluster: sessions and strikes for a while, then rest, a look at everything on every
// node, and judgement.
#pragma once

#include "run/run.hpp"

namespace idem::chaos {

Conclusion run_failover(const Options& options);

}  // namespace idem::chaos
