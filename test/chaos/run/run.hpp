// The runs: a scenario on one server, a Patroni cluster, a Citus cluster, and one whose workers
// Patroni manages.
#pragma once

#include "run/report.hpp"

namespace idem::chaos {

Conclusion run(const Options& options);
Conclusion run_failover(const Options& options);
Conclusion run_scaleout(const Options& options);
Conclusion run_node_failover(const Options& options);

}  // namespace idem::chaos
