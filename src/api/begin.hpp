// The composite type idem_claim, in which idem_begin, idem_execute and idem_get answer.
#pragma once

#include "claim/state.hpp"

namespace idem::api {

// The answer as a datum of the calling function's result type. The token is shown to the one who
// executes and to nobody else; a response only in a replay, or when it was asked for as such.
Datum claim_datum(FunctionCallInfo fcinfo, const claim::Answer& answer);

}  // namespace idem::api
