// idem_begin, its shortcuts idem_once and idem_get, and their result type idem_claim.

#include "api/begin.hpp"

#include "api/arguments.hpp"
#include "api/defaults.hpp"
#include "api/forward.hpp"
#include "api/types.hpp"
#include "claim/begin.hpp"
#include "claim/locks.hpp"
#include "claim/operator.hpp"
#include "claim/sealing.hpp"
#include "pg/boundary.hpp"
#include "pg/installed.hpp"
#include "worker/presence.hpp"

namespace idem::api {

namespace {

using Row = FieldRow<ClaimField>;

// The parts of a record that an answer shows. The caller that continues the claim sees token and
// progress. Callers that sent the same request see the result, and why the last attempt failed.
// Only idem_get, for operators, shows the provider's reference. Every caller sees status and times.
struct Shown {
    bool progress;
    bool result;
    bool token;
    bool error;
    bool reference;
};

Shown shown_in(const claim::Answer& answer) {
    if (!answer.decision) return {true, true, false, true, true};
    switch (answer.decision->outcome) {
        case core::Outcome::Execute:  // the result is there when idem_execute has recorded it
            return {true, answer.record.status != core::Status::InProgress, true, true, false};
        case core::Outcome::Replay:
            return {false, true, false, true, false};
        case core::Outcome::RetryLater:
        case core::Outcome::Exhausted:
            return {false, false, false, true, false};
        case core::Outcome::InProgress:
        case core::Outcome::Mismatch:
        case core::Outcome::Expired:
        case core::Outcome::Unknown:
            break;
    }
    return {false, false, false, false, false};
}

void set_record(const store::Record& record, Row* row) {
    row->value(ClaimField::Attempt, Int32GetDatum(record.attempt));
    row->word(ClaimField::Status, core::entry_of(record.status).word);
    row->pointer(ClaimField::Holder, claim::opened(record, &store::Record::holder));
    row->time(ClaimField::CreatedAt, record.created_at);
    row->time(ClaimField::FinishedAt, record.finished_at);
    row->time(ClaimField::LeaseUntil, record.lease_until);
    row->time(ClaimField::ExpiresAt, record.expires_at);
}

void set_shown(const store::Record& record, Shown shown, Row* row) {
    if (shown.token) row->value(ClaimField::Token, Int64GetDatum(record.token));
    if (shown.progress) {
        row->pointer(ClaimField::RecoveryPoint,
                     claim::opened(record, &store::Record::recovery_point));
        row->pointer(ClaimField::State, claim::opened(record, &store::Record::state));
    }
    if (shown.error) row->pointer(ClaimField::Error, claim::opened(record, &store::Record::error));
    if (shown.reference)
        row->pointer(ClaimField::Reference, claim::opened(record, &store::Record::reference));
    if (!shown.result) return;
    if (record.status_code) row->value(ClaimField::StatusCode, Int32GetDatum(*record.status_code));
    row->pointer(ClaimField::Headers, claim::opened(record, &store::Record::headers));
    row->pointer(ClaimField::Body, claim::opened(record, &store::Record::body));
    row->value(ClaimField::BodyOmitted, BoolGetDatum(record.body_omitted));
}

// idem_begin(key, request, scope, principal, fingerprint, ttl, lease, wait, first_sent, hold,
//            holder, same_statement, transactional, method, path, exclude, derive)
Datum begin(FunctionCallInfo fcinfo) {
    worker::ensure_launcher();
    claim::Question question{};
    question.function = "idem_begin()";
    question.id = identity_or_generated_key(fcinfo, 0, 2, 3);
    question.request = jsonb_or_null(fcinfo, 1);
    question.fingerprint = fingerprint_or_null(fcinfo, 4);
    question.ttl = span_or_none(fcinfo, 5, "ttl", core::kTtlRange);
    question.lease = span_or_none(fcinfo, 6, "lease", core::kLeaseRange);
    question.wait = span_or_none(fcinfo, 7, "wait", core::kWaitRange);
    question.first_sent = moment_or_none(fcinfo, 8, "first_sent");
    question.hold = bool_or(fcinfo, 9, false);
    if (!PG_ARGISNULL(10)) question.holder = required_name(fcinfo, 10, "holder");
    question.same_statement = bool_or(fcinfo, 11, false);
    question.transactional = bool_or(fcinfo, 12, false);
    question.method = text_or_null(fcinfo, 13);
    question.path = text_or_null(fcinfo, 14);
    if (!PG_ARGISNULL(15)) question.exclude = PG_GETARG_ARRAYTYPE_P(15);
    question.derive = span_or_none(fcinfo, 16, "derive", core::kTtlRange);
    return claim_datum(fcinfo, claim::begin(question));
}

// idem_once(key, scope, principal, ttl, wait, same_statement)
Datum once(FunctionCallInfo fcinfo) {
    worker::ensure_launcher();
    claim::Question question{};
    question.function = "idem_once()";
    question.id = identity(fcinfo, 0, 1, 2);
    question.ttl = span_or_none(fcinfo, 3, "ttl", core::kTtlRange);
    question.wait = span_or_none(fcinfo, 4, "wait", core::kWaitRange).value_or(claim::kForEver);
    question.without_request = true;
    question.transactional = true;  // complete at once
    question.same_statement = bool_or(fcinfo, 5, false);
    PG_RETURN_BOOL(claim::once(question));
}

// idem_get(key, scope, principal)
Datum get(FunctionCallInfo fcinfo) {
    pg::require_no_parallel_mode("idem_get()");
    claim::Answer answer = claim::get(identity(fcinfo, 0, 1, 2));
    if (!answer.has_record) PG_RETURN_NULL();
    return claim_datum(fcinfo, answer);
}

}  // namespace

// Only FROM calls with a ReturnSetInfo. It takes the row apart at once
// (ExecMakeTableFunctionResult), so the row may refer to the body in the TOAST table, as a table's
// row does. The body is then fetched only when it is read, and a scan that keeps the row needs no
// temporary file. A plain value must contain the body. Our lock on the table keeps other
// transactions from replacing the body before this transaction ends. If this transaction itself
// truncates the table, its cursor finds no body (XX000).
Datum claim_datum(FunctionCallInfo fcinfo, const claim::Answer& answer) {
    // Straight from the server's type cache: get_call_result_type() copies the type at each call.
    TupleDesc desc = pg::row_of_called(fcinfo->flinfo->fn_oid, kClaimFieldCount);
    Row row;
    memset(row.nulls, true, sizeof(row.nulls));
    memset(row.values, 0, sizeof(row.values));
    row.pointer(ClaimField::Key, answer.record.id.key);
    row.pointer(ClaimField::Scope, answer.record.id.scope);
    row.pointer(ClaimField::Principal, answer.record.id.principal);
    if (answer.decision) {
        row.word(ClaimField::Outcome, core::entry_of(answer.decision->outcome).word);
        auto retry_after = static_cast<double>(answer.decision->retry_after);
        if (retry_after > 0)
            row.value(ClaimField::RetryAfter, Float8GetDatum(retry_after / core::kSecond));
    }
    if (answer.has_record) {
        set_record(answer.record, &row);
        set_shown(answer.record, shown_in(answer), &row);
    }
    HeapTuple tuple = heap_form_tuple(desc, row.values, row.nulls);
    bool is_row = fcinfo->resultinfo != nullptr && IsA(fcinfo->resultinfo, ReturnSetInfo);
    Datum result = is_row ? PointerGetDatum(tuple->t_data) : HeapTupleGetDatum(tuple);
    ReleaseTupleDesc(desc);
    return result;
}

}  // namespace idem::api

IDEM_FUNCTION(idem_begin, idem::api::with_defaults<idem::api::at_its_records<idem::api::begin>>);
IDEM_FUNCTION(idem_once, idem::api::at_its_records<idem::api::once>);
IDEM_FUNCTION(idem_get, idem::api::at_its_records<idem::api::get>);
