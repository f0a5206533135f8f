// idem_begin and its shortcuts idem_once and idem_get.

#include "claim/begin.hpp"
#include "api/arguments.hpp"
#include "api/claim_result.hpp"
#include "claim/operator.hpp"
#include "pg/boundary.hpp"
#include "pg/errors.hpp"
#include "worker/presence.hpp"

namespace idem::api {

namespace {

// idem_begin(key, request, scope, principal, fingerprint, ttl, lease, wait, first_sent, hold,
//            holder, same_statement)
Datum begin(FunctionCallInfo fcinfo) {
    worker::ensure_launcher();
    claim::Question question{};
    question.function = "idem_begin()";
    question.id = identity_or_generated_key(fcinfo, 0, 2, 3);
    question.request = jsonb_or_null(fcinfo, 1);
    question.fingerprint = fingerprint_or_null(fcinfo, 4);
    question.ttl = duration_or_none(fcinfo, 5, "ttl", core::kTtlRange);
    question.lease = duration_or_none(fcinfo, 6, "lease", core::kLeaseRange);
    question.wait = duration_or_none(fcinfo, 7, "wait", core::kWaitRange);
    question.first_sent = moment_or_none(fcinfo, 8, "first_sent");
    question.hold = bool_or(fcinfo, 9, false);
    if (!PG_ARGISNULL(10)) question.holder = required_name(fcinfo, 10, "holder");
    question.same_statement = bool_or(fcinfo, 11, false);
    return claim_datum(fcinfo, claim::begin(question));
}

// idem_once(key, scope, principal, ttl, wait, same_statement)
Datum once(FunctionCallInfo fcinfo) {
    worker::ensure_launcher();
    claim::Question question{};
    question.function = "idem_once()";
    question.id = identity(fcinfo, 0, 1, 2);
    question.ttl = duration_or_none(fcinfo, 3, "ttl", core::kTtlRange);
    question.wait = duration_or_none(fcinfo, 4, "wait", core::kWaitRange).value_or(claim::kForEver);
    question.without_request = true;
    question.same_statement = bool_or(fcinfo, 5, false);
    PG_RETURN_BOOL(claim::once(question));
}

// idem_get(key, scope, principal)
Datum get(FunctionCallInfo fcinfo) {
    pg::require_no_parallel_mode("idem_get()");
    claim::Answer answer;
    if (!claim::look(identity(fcinfo, 0, 1, 2), &answer)) PG_RETURN_NULL();
    return claim_datum(fcinfo, answer);
}

}  // namespace

}  // namespace idem::api

IDEM_FUNCTION(idem_begin, idem::api::begin);
IDEM_FUNCTION(idem_once, idem::api::once);
IDEM_FUNCTION(idem_get, idem::api::get);
