// The table idempotency.attempt: what became of each attempt, where a policy keeps the history. A
// row is written when the attempt ends, in the transaction that ends it, and never changed, but
// that what is sealed is sealed anew.
//
// It is no table for the heap store: whoever wants a history pays for a statement of SQL. In a
// cluster it is distributed beside the records.
#pragma once

#include "store/record.hpp"

namespace idem::store {

inline constexpr const char* kAttemptTable = "attempt";

// How an attempt ended. With the status of its result, or without one.
enum class AttemptEnd {
    Completed,
    Failed,
    Retryable,
    Exhausted,
    Unknown,
    Silent,
    Released,
    TakenOver
};

// The attempt whose claim a record holds, or held until now; with the error, the reference and the
// status code that the end has brought, if any, sealed if the record is. It is kept until then.
struct Attempt {
    const Record* record;
    AttemptEnd how;
    TimestampTz ended;
    TimestampTz retained_until;
};

// Whoever is granted a key will be able to add its attempt: locks the table as that needs it. An
// error (55000) if it has a deferred trigger.
void reserve_attempt();

// With the rights of the table's owner. Where a trigger or rule of the owner's leaves the row out,
// there is none.
void add_attempt(const Attempt& attempt);

// Removes the one of a claim, if there is one: its end has been undone, and it may end once more.
void remove_attempt(const Identity& id, std::int64_t token);

// A row as it lies there: of its record identity, attempt, holder, error, reference, status code,
// resolved_by and what has sealed them, with begun as claimed_at, ended as finished_at, and
// retained_until.
struct KeptAttempt {
    Record record;
    text* how;
};

// Those of one key in the order of their ends, in the current memory context.
KeptAttempt* attempts_of(const Identity& id, int* count);

// Removes those of one key. Returns how many.
std::int64_t remove_attempts(const Identity& id);

struct ScopeAttempts {
    text* scope;
    std::int64_t attempts;
};

// How many a principal has in each scope, in the current memory context. Reads the whole table.
ScopeAttempts* attempts_by_scope(const text* principal, int* count);

// Removes those of a principal but in some scopes. Reads the whole table. Returns how many.
std::int64_t remove_attempts_of(const text* principal, const ArrayType* but_scopes);

// The tables with attempts that this node has, in the current memory context.
Oid* local_attempt_tables(int* count);

// Removes up to `limit` whose time is over, oldest first, of those that this node has, passing over
// those that others have locked. Returns how many.
std::int64_t sweep_attempts(std::int64_t limit);

}  // namespace idem::store
