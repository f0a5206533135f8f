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
    kHeld,
    kNoTakeover,
    kBodyOmitted,
    kStatusCode,
    kAttempt,
    kToken,
    kLease,
    kCreatedAt,
    kClaimedAt,
    kExpiresAt,
    kRetainedUntil,
    kLeaseUntil,
    kNextAttemptAt,
    kFinishedAt,
    kFingerprint,
    kHeaders,
    kBody,
    kError,
    kRecoveryPoint,
    kState,
    kHolder,
    kRequest,
    kResolvedBy,
    kColumns
};

struct ColumnType {
    const char* name;
    Oid type;
    bool may_be_null;
};
extern const ColumnType kColumnTypes[kColumns];

// The values point into the record.
void to_columns(const Record& record, Datum* values, bool* nulls);

// Copies everything into the current memory context.
void from_columns(const Datum* values, const bool* nulls, Record* record);

}  // namespace idem::store
