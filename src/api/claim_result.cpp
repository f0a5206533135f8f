#include "api/claim_result.hpp"

#include "core/outcome.hpp"

namespace idem::api {

namespace {

enum Field {
    kOutcome,
    kKey,
    kScope,
    kPrincipal,
    kToken,
    kAttempt,
    kStatus,
    kStatusCode,
    kHeaders,
    kBody,
    kBodyOmitted,
    kError,
    kRecoveryPoint,
    kState,
    kHolder,
    kRetryAfter,
    kCreatedAt,
    kFinishedAt,
    kLeaseUntil,
    kExpiresAt,
    kFields
};

struct Row {
    Datum values[kFields];
    bool nulls[kFields];

    void value(Field field, Datum datum) {
        values[field] = datum;
        nulls[field] = false;
    }
    void pointer(Field field, const void* pointer) {
        if (pointer != nullptr) value(field, PointerGetDatum(pointer));
    }
    void time(Field field, TimestampTz time) {
        if (!TIMESTAMP_NOT_FINITE(time)) value(field, TimestampTzGetDatum(time));
    }
    void word(Field field, std::string_view word) {
        value(field, PointerGetDatum(pg::make_text(word)));
    }
};

// Which parts of a record an answer shows: token and progress to the one who goes on with it, the
// result to those who sent the same request, and to them also why the last attempt failed. Status
// and times are for everybody.
struct Shown {
    bool progress;
    bool result;
    bool token;
    bool error;
};

Shown shown_in(const claim::Answer& answer) {
    if (!answer.outcome) return {true, true, false, true};
    bool executes = *answer.outcome == core::Outcome::Execute;
    bool replays = *answer.outcome == core::Outcome::Replay;
    bool ended = answer.record.status != core::Status::InProgress;
    bool pauses =
        *answer.outcome == core::Outcome::RetryLater || *answer.outcome == core::Outcome::Exhausted;
    return {executes, replays || (executes && ended), executes, executes || replays || pauses};
}

void set_identity(const store::Identity& id, Row* row) {
    row->pointer(kKey, id.key);
    row->pointer(kScope, id.scope);
    row->pointer(kPrincipal, id.principal);
}

void set_result(const store::Record& record, Row* row) {
    if (record.status_code) row->value(kStatusCode, Int32GetDatum(*record.status_code));
    row->pointer(kHeaders, record.headers);
    row->pointer(kBody, record.body);
    row->value(kBodyOmitted, BoolGetDatum(record.body_omitted));
}

void set_record(const store::Record& record, Row* row) {
    row->value(kAttempt, Int32GetDatum(record.attempt));
    row->word(kStatus, core::status_word(record.status));
    row->pointer(kHolder, record.holder);
    row->time(kCreatedAt, record.created_at);
    row->time(kFinishedAt, record.finished_at);
    row->time(kLeaseUntil, record.lease_until);
    row->time(kExpiresAt, record.expires_at);
}

void set_shown(const store::Record& record, Shown shown, Row* row) {
    if (shown.token) row->value(kToken, Int64GetDatum(record.token));
    if (shown.progress) {
        row->pointer(kRecoveryPoint, record.recovery_point);
        row->pointer(kState, record.state);
    }
    if (shown.error) row->pointer(kError, record.error);
    if (shown.result) set_result(record, row);
}

// Straight from the server's type cache: the general way to ask copies it for every call.
TupleDesc claim_type(FunctionCallInfo fcinfo) {
    Oid type = get_func_rettype(fcinfo->flinfo->fn_oid);
    TupleDesc desc = lookup_rowtype_tupdesc(type, -1);
    if (desc->natts != kFields)
        elog(ERROR, "idempotency: idem_claim is not the type this library knows");
    return desc;
}

}  // namespace

Datum claim_datum(FunctionCallInfo fcinfo, const claim::Answer& answer) {
    TupleDesc desc = claim_type(fcinfo);
    Row row;
    memset(row.nulls, true, sizeof(row.nulls));
    memset(row.values, 0, sizeof(row.values));
    set_identity(answer.record.id, &row);
    if (answer.outcome) row.word(kOutcome, core::outcome_word(*answer.outcome));
    if (answer.retry_after > 0)
        row.value(kRetryAfter, PointerGetDatum(pg::make_interval(answer.retry_after)));
    if (answer.has_record) {
        set_record(answer.record, &row);
        set_shown(answer.record, shown_in(answer), &row);
    }
    Datum result = HeapTupleGetDatum(heap_form_tuple(desc, row.values, row.nulls));
    ReleaseTupleDesc(desc);
    return result;
}

}  // namespace idem::api
