// idem_execute: runs an SQL function exactly once, as the caller, and stores its result.

#include "claim/execute.hpp"
#include "api/arguments.hpp"
#include "api/begin.hpp"
#include "api/defaults.hpp"
#include "api/forward.hpp"
#include "api/types.hpp"
#include "pg/boundary.hpp"
#include "pg/jsonb.hpp"
#include "worker/presence.hpp"

namespace idem::api {

namespace {

// The operation: a function of one jsonb argument that returns jsonb or idem_response.
struct Operation {
    Oid function;
    bool returns_response;  // or jsonb
    bool strict;
    text* name;  // with its schema, the same in every session and after a restore
    Datum result;
    bool returned_null;
};

[[noreturn]] void raise_operation(const char* detail) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_FUNCTION_DEFINITION), errmsg("invalid operation"),
                    errdetail("%s", detail),
                    errhint("Use a function of one jsonb argument that returns jsonb or "
                            "idem_response.")));
    pg_unreachable();
}

// Reads the form before the caller releases the tuple, so nothing in between may raise an error.
const char* fault_of(const FormData_pg_proc& form, Oid response) {
    if (form.prokind != PROKIND_FUNCTION)
        return "It is an aggregate, a window function or a procedure.";
    if (form.proretset) return "It returns a set.";
    if (form.pronargs != 1 || form.proargtypes.values[0] != JSONBOID)
        return "It does not take exactly one argument of type jsonb.";
    if (form.prorettype != JSONBOID && form.prorettype != response)
        return "It returns neither jsonb nor idem_response.";
    return nullptr;
}

// Like a call by name: a regprocedure may come from a number, without the checks of a name look-up.
void check_right(Oid function) {
    Oid schema = get_func_namespace(function);
    AclResult usage = pg::schema_aclcheck(schema, GetUserId(), ACL_USAGE);
    if (usage != ACLCHECK_OK) aclcheck_error(usage, OBJECT_SCHEMA, get_namespace_name(schema));
    AclResult right = pg::function_aclcheck(function, GetUserId(), ACL_EXECUTE);
    if (right != ACLCHECK_OK) aclcheck_error(right, OBJECT_FUNCTION, get_func_name(function));
    InvokeFunctionExecuteHook(function);
}

// Quoted by fixed rules: the server's depend on a setting and on its list of keywords.
void append_name(StringInfo out, const char* name) {
    bool plain = name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0' &&
                 !isdigit(static_cast<unsigned char>(*name));
    if (plain) {
        appendStringInfoString(out, name);
        return;
    }
    appendStringInfoChar(out, '"');
    for (; *name != '\0'; name++) {
        if (*name == '"') appendStringInfoChar(out, '"');
        appendStringInfoChar(out, *name);
    }
    appendStringInfoChar(out, '"');
}

text* name_of(Oid function) {
    StringInfoData out;
    initStringInfo(&out);
    append_name(&out, get_namespace_name(get_func_namespace(function)));
    appendStringInfoChar(&out, '.');
    append_name(&out, get_func_name(function));
    appendStringInfoString(&out, "(jsonb)");
    return pg::make_text({out.data, static_cast<std::size_t>(out.len)});
}

// Turns the operation's result into a response.
void take_result(void* argument, claim::Response* response) {
    const auto& operation = *static_cast<const Operation*>(argument);
    if (operation.returned_null) return;
    if (!operation.returns_response) {
        response->body = pg::as_bytea(pg::jsonb_text(DatumGetJsonbP(operation.result)));
        return;
    }
    HeapTupleHeader row = DatumGetHeapTupleHeader(operation.result);
    bool null;
    Datum value = field_of(row, ResponseField::StatusCode, &null);
    if (!null) {
        check_status_code(DatumGetInt32(value));
        response->status_code = DatumGetInt32(value);
    }
    value = field_of(row, ResponseField::Headers, &null);
    if (!null) response->headers = checked_headers(DatumGetJsonbPCopy(value));
    value = field_of(row, ResponseField::Body, &null);
    if (!null) response->body = DatumGetByteaPCopy(value);
}

// Checks the signature (42P13) and that the caller may execute it (42501).
Operation operation_argument(FunctionCallInfo fcinfo, int arg) {
    if (PG_ARGISNULL(arg)) raise_null("operation");
    Oid function = PG_GETARG_OID(arg);
    // The type idem_response in the schema of the function that is running.
    Oid schema = get_func_namespace(fcinfo->flinfo->fn_oid);
    Oid response = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("idem_response"),
                                   ObjectIdGetDatum(schema));
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(tuple)) raise_operation("There is no such function.");
    const auto* form = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple));
    const char* fault = fault_of(*form, response);
    Operation operation{function, form->prorettype == response, form->proisstrict, nullptr, 0,
                        false};
    ReleaseSysCache(tuple);
    if (fault != nullptr) raise_operation(fault);
    check_right(function);
    operation.name = name_of(function);
    return operation;
}

// Calls the operation as the current user. It sees everything committed before the grant, even if
// it is declared STABLE and the statement around it began earlier.
void run_operation(void* argument, Jsonb* request) {
    auto& operation = *static_cast<Operation*>(argument);
    FmgrInfo function;
    fmgr_info(operation.function, &function);
    PushActiveSnapshot(GetTransactionSnapshot());
    LOCAL_FCINFO(call, 1);
    InitFunctionCallInfoData(*call, &function, 1, InvalidOid, nullptr, nullptr);
    call->args[0].value = PointerGetDatum(request);
    call->args[0].isnull = request == nullptr;
    operation.result = FunctionCallInvoke(call);
    operation.returned_null = call->isnull;
    PopActiveSnapshot();
}

claim::Question question_of(FunctionCallInfo fcinfo, const Operation& operation) {
    claim::Question question{};
    question.function = "idem_execute()";
    question.id = identity_or_generated_key(fcinfo, 0, 3, 4);
    question.request = jsonb_or_null(fcinfo, 2);
    question.fingerprint = fingerprint_or_null(fcinfo, 5);
    question.operation = operation.name;
    question.ttl = span_or_none(fcinfo, 6, "ttl", core::kTtlRange);
    question.wait = span_or_none(fcinfo, 7, "wait", core::kWaitRange);
    question.first_sent = moment_or_none(fcinfo, 8, "first_sent");
    if (!PG_ARGISNULL(9)) question.holder = required_name(fcinfo, 9, "holder");
    question.method = text_or_null(fcinfo, 10);
    question.path = text_or_null(fcinfo, 11);
    return question;
}

// idem_execute(key, operation, request, scope, principal, fingerprint, ttl, wait, first_sent,
//              holder, method, path)
Datum execute(FunctionCallInfo fcinfo) {
    worker::ensure_launcher();
    Operation operation = operation_argument(fcinfo, 1);
    claim::Question question = question_of(fcinfo, operation);
    if (operation.strict && question.request == nullptr)
        ereport(ERROR,
                (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("operation requires a request"),
                 errdetail("The function is strict, so it is not called with null."),
                 errhint("Pass a request, or drop STRICT from the function.")));
    return claim_datum(fcinfo, claim::execute(question, {run_operation, take_result, &operation}));
}

}  // namespace

}  // namespace idem::api

IDEM_FUNCTION(idem_execute,
              idem::api::with_defaults<idem::api::at_its_records<idem::api::execute>>);
