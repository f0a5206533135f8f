// Where a run took place: without that its numbers say little.
#pragma once

#include "harness/connection.hpp"
#include "harness/report.hpp"

namespace idem::bench {

Json describe_machine(Connection& admin);

}  // namespace idem::bench
