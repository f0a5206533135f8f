// A run on a Citus cluster: sessions on all of its nodes, harm, and the same judgement.
#pragma once

#include "run/options.hpp"
#include "run/run.hpp"

namespace idem::chaos {

Conclusion run_scaleout(const Options& options);

}  // namespace idem::chaos
