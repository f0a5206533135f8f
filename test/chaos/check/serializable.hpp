// Invariant 22: the reads and writes of SERIALIZABLE transactions in the tables of the work fit a
// serial order, also with claims around them. The answers of idem_* do not count as reads here.
#pragma once

#include "check/rules.hpp"

namespace idem::chaos {

// Finds dependency cycles. Values name their writers, so reads tell which version of an object they
// saw. Its writer came before (write-read), the writer of the next version comes after
// (read-write), and versions follow each other (write-write).
std::vector<Violation> check_serializable(const History& history);

}  // namespace idem::chaos
