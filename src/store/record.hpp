// A record as the protocol handles it: the row of one (scope, principal, key).
#pragma once

#include "core/decision.hpp"
#include "pg/datum.hpp"

namespace idem::store {

// What names a record. The texts belong to the caller.
struct Identity {
    text* scope;
    text* principal;
    text* key;
    std::uint64_t hash;  // of the three, equal in every backend; for locks and hash tables, where a
                         // collision is harmless: the row decides
};

// A key that is yet to be made may be nullptr.
Identity make_identity(text* scope, text* principal, text* key);

// Pointers are nullptr and times pg::kNoTime where the row has null.
struct Record {
    Identity id;
    core::Status status;
    bool no_takeover;         // the policy at its claim: once silent, its result is unknown
    bool body_omitted;        // the body was over the limit and the policy said to leave it out
    bool omit_large_body;     // the policy at its claim: it says so
    std::int32_t body_limit;  // the policy at its claim, in bytes
    std::optional<std::int32_t> status_code;
    std::int32_t attempt;
    std::int32_t backend_pid;  // claimed with `hold`: the backend of the holder; 0: without
    std::int64_t token;
    std::int64_t lease;           // microseconds; the default of heartbeats
    TimestampTz created_at;       // first claim of the record
    TimestampTz claimed_at;       // claim of this attempt
    TimestampTz expires_at;       // end of the ttl
    TimestampTz retained_until;   // end of the retention: when the row may go
    TimestampTz lease_until;      // in progress, once committed
    TimestampTz next_attempt_at;  // retryable
    TimestampTz finished_at;
    TimestampTz backend_start;  // tells that backend from a later one with the same pid
    bytea* fingerprint;
    text* operation;  // what idem_execute runs for it; nullptr: not known
    Jsonb* headers;
    bytea* body;
    text* error;
    text* recovery_point;
    Jsonb* state;
    text* holder;
    Jsonb* request;
    ArrayType* excluded;  // the fields that the fingerprint was taken without
    text* resolved_by;    // the operator who decided with idem_resolve
};

// What tells one state of a row from the next: each claim has its token, and ends once. In between,
// a heartbeat or checkpoint moves the end of the lease; whoever takes a claim over must not have
// missed one, while its holder may have sent it.
struct Version {
    std::int64_t token;
    core::Status status;
    TimestampTz lease_until;  // pg::kNoTime: any
};

inline Version version_of(const Record& record) {
    return {record.token, record.status, record.lease_until};
}

inline bool is_version(const Record& record, const Version& expected) {
    return record.token == expected.token && record.status == expected.status &&
           (expected.lease_until == pg::kNoTime || record.lease_until == expected.lease_until);
}

inline Version any_lease_of(const Record& record) {
    return {record.token, record.status, pg::kNoTime};
}

bool same_identity(const Identity& a, const Identity& b);

// A copy in the current memory context that shares nothing with the original.
Identity copy_identity(const Identity& id);
Record copy_record(const Record& record);

// Frees what copy_record made.
void free_record(Record* record);

}  // namespace idem::store
