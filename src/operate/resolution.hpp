// What an operator's decision about records is made of, in the arguments of each function that
// takes one.
#pragma once

#include "claim/operator.hpp"

namespace idem::operate {

// The action; from `first` on status_code, body, headers and error; the reason. What does not go
// with the action is refused (22023): whoever gave it believes that it is kept.
claim::Resolution resolution_of(FunctionCallInfo fcinfo, int action, int first, int reason);

}  // namespace idem::operate
