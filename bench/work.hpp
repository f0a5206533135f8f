// What clients do.
#pragma once

#include <string>

#include "load.hpp"

namespace idem::bench {

// Bytes of a response's body.
constexpr int kBodyBytes = 200;

// A first execution in three round trips: BEGIN with idem_begin of a new random key, idem_complete
// with a body of kBodyBytes, COMMIT. No business statement: nothing else dilutes what the records
// cost.
WorkFactory first_execution(const std::string& ttl);

}  // namespace idem::bench
