// Invariant 22: what SERIALIZABLE transactions read and wrote in the tables of the work fits an
// order one after the other, also where claims are around it. What idem_* answers is no read here.
#pragma once

#include "check/rules.hpp"

namespace idem::chaos {

// Finds dependency cycles. Values name their writers, so reads tell which version of an object they
// saw: whoever wrote it came before (write-read), whoever wrote the next one comes after
// (read-write), and versions follow each other (write-write).
std::vector<Violation> check_serializable(const History& history);

}  // namespace idem::chaos
