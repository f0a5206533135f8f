// The composite type idem_claim, in which idem_begin, idem_execute and idem_get answer.
#pragma once

#include "claim/state.hpp"

namespace idem::api {

// The answer as a datum of the calling function's result type. Only the caller that executes sees
// the token. A response is shown in a replay, or when the caller asked for it.
Datum claim_datum(FunctionCallInfo fcinfo, const claim::Answer& answer);

}  // namespace idem::api
