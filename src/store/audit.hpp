// The table idempotency.audit: what operators and the owner have decided. Rows are added, removed
// when their time is over, and made anonymous where a principal is to be forgotten; nothing else is
// ever done to one.
//
// It is no table of Citus: each node keeps what was decided there, in the transaction that decides.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

inline constexpr const char* kAuditTable = "audit";

// A row as it is to be. Whatever is nullptr is null.
struct AuditRow {
    const text* action;
    const text* scope;  // or the pattern of a policy
    const text* principal;
    const text* key;   // its digest is stored instead, unless idempotency.log_keys is on
    const char* role;  // that was granted to, or revoked from
    const Jsonb* before;
    const Jsonb* after;
    const text* reason;
    const char* decided_by;  // the session's user
    const char* acting_as;   // the current one
    bool erased;             // principal and key are left out for good
};

// With the rights of the table's owner. An error (55000) if the table does not take the row: what
// can't be written down is not decided.
void add_audit_row(const AuditRow& row);

// Removes up to `limit` rows whose time (idempotency.audit_retention) is over, oldest first,
// passing over those that others have locked. Returns how many.
std::int64_t sweep_audit(std::int64_t limit);

// Takes principal, key and its digest out of all rows of a principal. Returns how many. Reads the
// whole table.
std::int64_t make_audit_anonymous(const text* principal);

}  // namespace idem::store
