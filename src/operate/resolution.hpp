// An operator's decision about records, from the arguments of each function that takes one.
#pragma once

#include "claim/operator.hpp"

namespace idem::operate {

// The action; from `first` on status_code, body, headers and error; the reason. Refuses values that
// do not go with the action (22023): the caller would believe that they are stored.
claim::Resolution resolution_of(FunctionCallInfo fcinfo, int action, int first, int reason);

// The error (22023) for a value that does not go with the action.
[[noreturn]] void raise_unused(const char* what, const char* detail);

}  // namespace idem::operate
