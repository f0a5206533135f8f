// Arguments left at their defaults. idem_begin has 17, and most calls give four. In FROM the
// executor prepares each argument by an expression of its own (ExecInitTableFunctionResult), which
// costs as much as the search for the record. So the planner drops the trailing ones
// (idempotency.without_defaults, a support function), and the function restores them as nulls.
#pragma once

#include "pg/pg.hpp"

namespace idem::api {

// The call with all declared arguments; null means the default.
template <Datum (*body)(FunctionCallInfo)>
Datum with_defaults(FunctionCallInfo fcinfo) {
    int declared = fcinfo->flinfo->fn_nargs;
    if (fcinfo->nargs >= declared) return body(fcinfo);
    LOCAL_FCINFO(whole, FUNC_MAX_ARGS);
    memcpy(whole, fcinfo, SizeForFunctionCallInfo(fcinfo->nargs));
    for (; whole->nargs < declared; whole->nargs++) whole->args[whole->nargs] = {0, true};
    Datum result = body(whole);
    fcinfo->isnull = whole->isnull;
    return result;
}

}  // namespace idem::api
