// The runs: a scenario on one server, a Patroni cluster, a Citus cluster.
#pragma once

#include "run/report.hpp"

namespace idem::chaos {

Conclusion run(const Options& options);
Conclusion run_failover(const Options& options);
Conclusion run_scaleout(const Options& options);

}  // namespace idem::chaos
