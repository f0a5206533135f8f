// idem_complete, idem_fail, idem_unknown, idem_release, idem_extend, idem_checkpoint. The first two
// have one function per kind of body: text (also for json), bytea and jsonb.

#include "api/arguments.hpp"
#include "api/forward.hpp"
#include "claim/holder.hpp"
#include "pg/boundary.hpp"
#include "pg/jsonb.hpp"

namespace idem::api {

namespace {

using BodyReader = bytea* (*)(FunctionCallInfo fcinfo, int arg);

bytea* text_body(FunctionCallInfo fcinfo, int arg) {
    text* body = text_or_null(fcinfo, arg);
    return body == nullptr ? nullptr : pg::as_bytea(body);
}

bytea* jsonb_body(FunctionCallInfo fcinfo, int arg) {
    Jsonb* body = jsonb_or_null(fcinfo, arg);
    return body == nullptr ? nullptr : pg::as_bytea(pg::jsonb_text(body));
}

claim::ClaimRef claim_ref(FunctionCallInfo fcinfo, const char* function, int scope, int principal,
                          int token) {
    return {function, identity(fcinfo, 0, scope, principal), bigint_or_none(fcinfo, token)};
}

claim::Response response(FunctionCallInfo fcinfo, int status_code, BodyReader body_reader) {
    return {status_code_or_none(fcinfo, status_code), body_reader(fcinfo, status_code + 1),
            headers_or_null(fcinfo, status_code + 2)};
}

// idem_complete(key, status_code, body, headers, scope, principal, token, ttl)
template <BodyReader body_reader>
Datum complete(FunctionCallInfo fcinfo) {
    claim::ClaimRef ref = claim_ref(fcinfo, "idem_complete()", 4, 5, 6);
    claim::Response given = response(fcinfo, 1, body_reader);
    auto ttl = span_or_none(fcinfo, 7, "ttl", core::kTtlRange);
    PG_RETURN_BOOL(claim::complete(ref, given, ttl));
}

// idem_fail(key, error, retryable, status_code, body, headers, scope, principal, token,
// retry_after, uncertain)
template <BodyReader body_reader>
Datum fail(FunctionCallInfo fcinfo) {
    claim::ClaimRef ref = claim_ref(fcinfo, "idem_fail()", 6, 7, 8);
    claim::Failure failure{text_or_null(fcinfo, 1), bool_or(fcinfo, 2, false),
                           span_or_none(fcinfo, 9, "retry_after", core::kRetryRange),
                           bool_or(fcinfo, 10, false)};
    if (failure.retry_after && !failure.retryable)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid retry_after"),
                        errdetail("A final failure is not run again."),
                        errhint("Add retryable => true, or omit retry_after.")));
    if (failure.uncertain && !failure.retryable)
        ereport(ERROR,
                (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid uncertain"),
                 errdetail("The outcome of a final failure is certain."),
                 errhint("Add retryable => true, or call idem_unknown if the request must not be "
                         "run again under any policy.")));
    PG_RETURN_BOOL(claim::fail(ref, response(fcinfo, 3, body_reader), failure));
}

// idem_unknown(key, error, reference, scope, principal, token)
Datum unknown(FunctionCallInfo fcinfo) {
    claim::ClaimRef ref = claim_ref(fcinfo, "idem_unknown()", 3, 4, 5);
    PG_RETURN_BOOL(claim::end_unknown(ref, text_or_null(fcinfo, 1), text_or_null(fcinfo, 2)));
}

// idem_release(key, scope, principal, token)
Datum release(FunctionCallInfo fcinfo) {
    PG_RETURN_BOOL(claim::release(claim_ref(fcinfo, "idem_release()", 1, 2, 3)));
}

// idem_extend(key, token, lease, scope, principal)
Datum extend(FunctionCallInfo fcinfo) {
    claim::ClaimRef ref = claim_ref(fcinfo, "idem_extend()", 3, 4, 1);
    auto lease = span_or_none(fcinfo, 2, "lease", core::kLeaseRange);
    PG_RETURN_TIMESTAMPTZ(claim::extend(ref, lease));
}

// idem_checkpoint(key, recovery_point, state, scope, principal, token, lease)
Datum checkpoint(FunctionCallInfo fcinfo) {
    claim::ClaimRef ref = claim_ref(fcinfo, "idem_checkpoint()", 3, 4, 5);
    text* recovery_point = required_name(fcinfo, 1, "recovery_point");
    auto lease = span_or_none(fcinfo, 6, "lease", core::kLeaseRange);
    PG_RETURN_TIMESTAMPTZ(claim::checkpoint(ref, recovery_point, jsonb_or_null(fcinfo, 2), lease));
}

}  // namespace

}  // namespace idem::api

IDEM_FUNCTION(idem_complete_text,
              idem::api::at_its_records<idem::api::complete<idem::api::text_body>>);
IDEM_FUNCTION(idem_complete_bytea,
              idem::api::at_its_records<idem::api::complete<idem::api::bytea_or_null>>);
IDEM_FUNCTION(idem_complete_jsonb,
              idem::api::at_its_records<idem::api::complete<idem::api::jsonb_body>>);
IDEM_FUNCTION(idem_fail_text, idem::api::at_its_records<idem::api::fail<idem::api::text_body>>);
IDEM_FUNCTION(idem_fail_bytea,
              idem::api::at_its_records<idem::api::fail<idem::api::bytea_or_null>>);
IDEM_FUNCTION(idem_fail_jsonb, idem::api::at_its_records<idem::api::fail<idem::api::jsonb_body>>);
IDEM_FUNCTION(idem_unknown, idem::api::at_its_records<idem::api::unknown>);
IDEM_FUNCTION(idem_release, idem::api::at_its_records<idem::api::release>);
IDEM_FUNCTION(idem_extend, idem::api::at_its_records<idem::api::extend>);
IDEM_FUNCTION(idem_checkpoint, idem::api::at_its_records<idem::api::checkpoint>);
