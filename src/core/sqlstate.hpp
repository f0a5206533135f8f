// What an SQLSTATE says about whose fault an error is.
#pragma once

#include <string_view>

namespace idem::core {

// Whether an error of an operation is its request's own fault, so that another try of the same
// request would meet it again: bad data, a violated constraint, or what the operation itself says
// about the request. Everything else is of the surroundings and may have passed by the next try: a
// deploy, a lost right, a limit, a conflict, a fault in the operation.
bool is_fault_of_request(std::string_view sqlstate) noexcept;

}  // namespace idem::core
