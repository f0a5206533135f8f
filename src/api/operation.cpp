#include "api/operation.hpp"

#include "api/arguments.hpp"
#include "pg/errors.hpp"

namespace idem::api {

namespace {

// The type idem_response in the schema of the function that is running.
Oid response_type(FunctionCallInfo fcinfo) {
    Oid schema = get_func_namespace(fcinfo->flinfo->fn_oid);
    return GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("idem_response"),
                           ObjectIdGetDatum(schema));
}

// The form is looked at before the tuple is given back, so nothing in between may raise.
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

// As a call by name would: a regprocedure may be a number, which no name look-up has checked.
void check_right(Oid function) {
    Oid schema = get_func_namespace(function);
    AclResult usage = pg::schema_aclcheck(schema, GetUserId(), ACL_USAGE);
    if (usage != ACLCHECK_OK) aclcheck_error(usage, OBJECT_SCHEMA, get_namespace_name(schema));
    AclResult right = pg::function_aclcheck(function, GetUserId(), ACL_EXECUTE);
    if (right != ACLCHECK_OK) aclcheck_error(right, OBJECT_FUNCTION, get_func_name(function));
    InvokeFunctionExecuteHook(function);
}

// Quoted by rules that never change: the server's follow a setting and its list of words.
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

bytea* body_of_jsonb(Datum value) {
    return pg::as_bytea(pg::jsonb_text(DatumGetJsonbP(value)));
}

void take_response(HeapTupleHeader row, claim::Response* response) {
    bool null;
    Datum value = GetAttributeByName(row, "status_code", &null);
    if (!null) {
        check_status_code(DatumGetInt32(value));
        response->status_code = DatumGetInt32(value);
    }
    value = GetAttributeByName(row, "headers", &null);
    if (!null) {
        response->headers = DatumGetJsonbPCopy(value);
        check_headers(response->headers);
    }
    value = GetAttributeByName(row, "body", &null);
    if (!null) response->body = DatumGetByteaPCopy(value);
}

void take_result(const Operation& operation, Datum result, claim::Response* response) {
    if (operation.returns_response)
        take_response(DatumGetHeapTupleHeader(result), response);
    else
        response->body = body_of_jsonb(result);
}

}  // namespace

Operation operation_argument(FunctionCallInfo fcinfo, int arg) {
    if (PG_ARGISNULL(arg)) pg::raise_null("operation");
    Oid function = PG_GETARG_OID(arg);
    Oid response = response_type(fcinfo);
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(tuple)) pg::raise_operation("There is no such function.");
    const auto* form = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple));
    const char* fault = fault_of(*form, response);
    Operation operation{function, form->prorettype == response, form->proisstrict, nullptr};
    ReleaseSysCache(tuple);
    if (fault != nullptr) pg::raise_operation(fault);
    check_right(function);
    operation.name = name_of(function);
    return operation;
}

void run_operation(const Operation& operation, Jsonb* request, claim::Response* response) {
    FmgrInfo function;
    fmgr_info(operation.function, &function);
    PushActiveSnapshot(GetTransactionSnapshot());
    LOCAL_FCINFO(call, 1);
    InitFunctionCallInfoData(*call, &function, 1, InvalidOid, nullptr, nullptr);
    call->args[0].value = PointerGetDatum(request);
    call->args[0].isnull = request == nullptr;
    Datum result = FunctionCallInvoke(call);
    if (!call->isnull) take_result(operation, result, response);
    PopActiveSnapshot();
}

}  // namespace idem::api
