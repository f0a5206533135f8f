// The table idempotency.audit: the decisions of operators and of the owner. Rows are added, removed
// after their retention, and made anonymous when a principal is forgotten. They never change
// otherwise.
//
// It is no table of Citus: each node keeps its own decisions, each in the transaction that decides.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

inline constexpr const char* kAuditTable = "audit";

// A row to add; nullptr is null.
struct AuditRow {
    const text* action;
    const text* scope;  // or the pattern of a policy
    const text* principal;
    const text* key;   // its digest is stored instead, unless idempotency.log_keys is on
    const char* role;  // that rights were granted to, or revoked from
    const Jsonb* before;
    const Jsonb* after;
    const text* reason;
    const char* decided_by;  // the session's user
    const char* acting_as;   // the current one
    bool erased;             // principal and key are left out for good
};

// With the rights of the table's owner. An error (55000) if the table does not take the row: a
// decision that can't be recorded fails.
void add_audit_row(const AuditRow& row);

// Links up to `limit` committed rows to the chain. Logs the newest link, if idempotency.log_audit
// is on and its transaction has committed. False if there was nothing to do, or if another session
// is doing it.
bool link_decisions(std::int64_t limit);

// Removes up to `limit` linked rows older than idempotency.audit_retention, in the order of their
// links. Returns their number; none if another session has the chain.
std::int64_t sweep_audit(std::int64_t limit);

// A row of idem_audit_verify(): number, rows, problem, decided_at, detail.
inline constexpr int kFaultColumns = 5;
struct Fault {
    Datum values[kFaultColumns];
    bool nulls[kFaultColumns];
};

// The faults of the chain, in the current memory context. `link`: of a line of the server log, or
// nullptr.
Fault* faults_of_audit(const text* link, int* count);

// Clears principal, key and its digest in all rows of a principal. Returns their number. Reads the
// whole table.
std::int64_t make_audit_anonymous(const text* principal);

}  // namespace idem::store
