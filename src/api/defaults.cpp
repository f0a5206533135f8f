#include "api/defaults.hpp"

#include "pg/boundary.hpp"

namespace idem::api {

namespace {

// Key, scope and principal are among the first five arguments of each function with this support
// function. They stay: Citus reads the principal by its position (TryToDelegateFunctionCall), and
// their defaults are not null.
constexpr int kKept = 5;

// idempotency.without_defaults(internal): SupportRequestSimplify. simplify_function() has added the
// defaults to the call. The copy of the call that is returned lacks the trailing ones.
Datum without_defaults(FunctionCallInfo fcinfo) {
    auto* request = reinterpret_cast<SupportRequestSimplify*>(PG_GETARG_POINTER(0));
    if (!IsA(request, SupportRequestSimplify)) return 0;
    List* arguments = request->fcall->args;
    int count = list_length(arguments);
    for (; count > kKept; count--) {
        auto* value = static_cast<const Const*>(list_nth(arguments, count - 1));
        // Null or false, which the functions treat alike.
        bool says_nothing = IsA(value, Const) &&
                            (value->constisnull ||
                             (value->consttype == BOOLOID && !DatumGetBool(value->constvalue)));
        if (!says_nothing) break;
    }
    if (count == list_length(arguments)) return 0;
    FuncExpr* call = makeNode(FuncExpr);
    *call = *request->fcall;
    call->args = list_truncate(list_copy(arguments), count);
    PG_RETURN_POINTER(call);
}

}  // namespace

}  // namespace idem::api

IDEM_FUNCTION(idem_without_defaults, idem::api::without_defaults);
