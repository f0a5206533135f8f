// Where a run took place: without that its numbers say little.
#pragma once

#include "connection.hpp"
#include "report.hpp"

namespace idem::bench {

Json describe_machine(Connection& admin);

}  // namespace idem::bench
