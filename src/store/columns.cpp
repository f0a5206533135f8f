#include "store/columns.hpp"

namespace idem::store {

namespace {

// One place that knows how a null looks on either side.
struct Writer {
    Datum* values;
    bool* nulls;

    void value(Column column, Datum datum) {
        values[column] = datum;
        nulls[column] = false;
    }
    void pointer(Column column, const void* pointer) {
        values[column] = PointerGetDatum(pointer);
        nulls[column] = pointer == nullptr;
    }
    void time(Column column, TimestampTz time) {
        values[column] = TimestampTzGetDatum(time);
        nulls[column] = time == pg::kNoTime;
    }
};

struct Reader {
    const Datum* values;
    const bool* nulls;

    template <typename T>
    void pointer(Column column, T** pointer) const {
        *pointer =
            nulls[column] ? nullptr : reinterpret_cast<T*>(PG_DETOAST_DATUM_COPY(values[column]));
    }
    TimestampTz time(Column column) const {
        return nulls[column] ? pg::kNoTime : DatumGetTimestampTz(values[column]);
    }
};

void write_texts(const Record& record, Writer out) {
    out.pointer(kScope, record.id.scope);
    out.pointer(kPrincipal, record.id.principal);
    out.pointer(kKey, record.id.key);
    out.pointer(kFingerprint, record.fingerprint);
    out.pointer(kOperation, record.operation);
    out.pointer(kHeaders, record.headers);
    out.pointer(kBody, record.body);
    out.pointer(kError, record.error);
    out.pointer(kRecoveryPoint, record.recovery_point);
    out.pointer(kState, record.state);
    out.pointer(kHolder, record.holder);
    out.pointer(kRequest, record.request);
    out.pointer(kExcluded, record.excluded);
    out.pointer(kResolvedBy, record.resolved_by);
}

void write_times(const Record& record, Writer out) {
    out.time(kCreatedAt, record.created_at);
    out.time(kClaimedAt, record.claimed_at);
    out.time(kExpiresAt, record.expires_at);
    out.time(kRetainedUntil, record.retained_until);
    out.time(kLeaseUntil, record.lease_until);
    out.time(kNextAttemptAt, record.next_attempt_at);
    out.time(kFinishedAt, record.finished_at);
    out.time(kBackendStart, record.backend_start);
}

void read_texts(Reader in, Record* record) {
    in.pointer(kScope, &record->id.scope);
    in.pointer(kPrincipal, &record->id.principal);
    in.pointer(kKey, &record->id.key);
    in.pointer(kFingerprint, &record->fingerprint);
    in.pointer(kOperation, &record->operation);
    in.pointer(kHeaders, &record->headers);
    in.pointer(kBody, &record->body);
    in.pointer(kError, &record->error);
    in.pointer(kRecoveryPoint, &record->recovery_point);
    in.pointer(kState, &record->state);
    in.pointer(kHolder, &record->holder);
    in.pointer(kRequest, &record->request);
    in.pointer(kExcluded, &record->excluded);
    in.pointer(kResolvedBy, &record->resolved_by);
}

void read_times(Reader in, Record* record) {
    record->created_at = in.time(kCreatedAt);
    record->claimed_at = in.time(kClaimedAt);
    record->expires_at = in.time(kExpiresAt);
    record->retained_until = in.time(kRetainedUntil);
    record->lease_until = in.time(kLeaseUntil);
    record->next_attempt_at = in.time(kNextAttemptAt);
    record->finished_at = in.time(kFinishedAt);
    record->backend_start = in.time(kBackendStart);
}

}  // namespace

void to_columns(const Record& record, Datum* values, bool* nulls) {
    Writer out{values, nulls};
    write_texts(record, out);
    write_times(record, out);
    out.value(kStatus, CharGetDatum(static_cast<char>(record.status)));
    out.value(kNoTakeover, BoolGetDatum(record.no_takeover));
    out.value(kBodyOmitted, BoolGetDatum(record.body_omitted));
    out.value(kOmitLargeBody, BoolGetDatum(record.omit_large_body));
    out.value(kBodyLimit, Int32GetDatum(record.body_limit));
    out.value(kStatusCode, Int32GetDatum(record.status_code.value_or(0)));
    nulls[kStatusCode] = !record.status_code;
    out.value(kAttempt, Int32GetDatum(record.attempt));
    out.value(kToken, Int64GetDatum(record.token));
    out.value(kLease, Int64GetDatum(record.lease));
    out.value(kBackendPid, Int32GetDatum(record.backend_pid));
    nulls[kBackendPid] = record.backend_pid == 0;
}

void from_columns(const Datum* values, const bool* nulls, Record* record) {
    Reader in{values, nulls};
    read_texts(in, record);
    read_times(in, record);
    record->status = static_cast<core::Status>(DatumGetChar(values[kStatus]));
    record->no_takeover = DatumGetBool(values[kNoTakeover]);
    record->body_omitted = DatumGetBool(values[kBodyOmitted]);
    record->omit_large_body = DatumGetBool(values[kOmitLargeBody]);
    record->body_limit = DatumGetInt32(values[kBodyLimit]);
    record->status_code.reset();
    if (!nulls[kStatusCode]) record->status_code = DatumGetInt32(values[kStatusCode]);
    record->attempt = DatumGetInt32(values[kAttempt]);
    record->token = DatumGetInt64(values[kToken]);
    record->lease = DatumGetInt64(values[kLease]);
    record->backend_pid = nulls[kBackendPid] ? 0 : DatumGetInt32(values[kBackendPid]);
}

}  // namespace idem::store
