// The columns of idempotency.record in the order in which statements name them, and a record as
// their values.
#pragma once

#include "store/record.hpp"

namespace idem::store {

enum Column {
    kScope,
    kPrincipal,
    kKey,
    kStatus,
    kNoTakeover,
    kBodyOmitted,
    kOmitLargeBody,
    kStatusCode,
    kAttempt,
    kBodyLimit,
    kToken,
    kLease,
    kBackendPid,
    kCreatedAt,
    kClaimedAt,
    kExpiresAt,
    kRetainedUntil,
    kLeaseUntil,
    kNextAttemptAt,
    kFinishedAt,
    kBackendStart,
    kFingerprint,
    kOperation,
    kHeaders,
    kBody,
    kError,
    kRecoveryPoint,
    kState,
    kHolder,
    kRequest,
    kExcluded,
    kResolvedBy,
    kColumns
};

struct ColumnType {
    const char* name;
    Oid type;
    bool may_be_null;
};
inline constexpr ColumnType kColumnTypes[kColumns] = {
    {"scope", TEXTOID, false},
    {"principal", TEXTOID, false},
    {"key", TEXTOID, false},
    {"status", CHAROID, false},
    {"no_takeover", BOOLOID, false},
    {"body_omitted", BOOLOID, false},
    {"omit_large_body", BOOLOID, false},
    {"status_code", INT4OID, true},
    {"attempt", INT4OID, false},
    {"body_limit", INT4OID, false},
    {"token", INT8OID, false},
    {"lease_us", INT8OID, false},
    {"backend_pid", INT4OID, true},
    {"created_at", TIMESTAMPTZOID, false},
    {"claimed_at", TIMESTAMPTZOID, false},
    {"expires_at", TIMESTAMPTZOID, false},
    {"retained_until", TIMESTAMPTZOID, false},
    {"lease_until", TIMESTAMPTZOID, true},
    {"next_attempt_at", TIMESTAMPTZOID, true},
    {"finished_at", TIMESTAMPTZOID, true},
    {"backend_start", TIMESTAMPTZOID, true},
    {"fingerprint", BYTEAOID, true},
    {"operation", TEXTOID, true},
    {"headers", JSONBOID, true},
    {"body", BYTEAOID, true},
    {"error", TEXTOID, true},
    {"recovery_point", TEXTOID, true},
    {"state", JSONBOID, true},
    {"holder", TEXTOID, true},
    {"request", JSONBOID, true},
    {"excluded", TEXTARRAYOID, true},
    {"resolved_by", TEXTOID, true},
};

// The values point into the record.
void to_columns(const Record& record, Datum* values, bool* nulls);

// Copies everything into the current memory context.
void from_columns(const Datum* values, const bool* nulls, Record* record);

}  // namespace idem::store
