// The table idempotency.attempt: the result of each attempt, where a policy keeps the history. The
// transaction that ends an attempt writes its row. Rows never change, except that sealed values are
// resealed.
//
// The heap store does not serve it: only policies with a history pay for its SQL statement. In a
// cluster it is colocated with the records.
#pragma once

#include "store/record.hpp"

namespace idem::store {

inline constexpr const char* kAttemptTable = "attempt";

// How an attempt ended: with the status of its result, or without one.
enum class AttemptEnd {
    Completed,
    Failed,
    Retryable,
    Exhausted,
    Unknown,
    Silent,
    Released,
    TakenOver,
    CutOff  // an operator released it beside a holder that may live
};

// The attempt whose claim a record holds, or held until now. It has the error, the reference and
// the status code of its end, if any, sealed if the record is. `retained_until` is when it may be
// removed.
struct Attempt {
    const Record* record;
    AttemptEnd how;
    TimestampTz ended;
    TimestampTz retained_until;
};

// Locks the table so that a session that is granted a key can add its attempt. An error (55000) if
// the table has a deferred trigger.
void reserve_attempt();

// With the rights of the table's owner. A trigger or rule of the owner may drop the row.
void add_attempt(const Attempt& attempt);

// Removes the attempt of a claim, if there is one: its end was undone, and it may end again.
void remove_attempt(const Identity& id, std::int64_t token);

// A row as stored. Its record has identity, attempt, holder, error, reference, status code,
// resolved_by and the sealing, with begun as claimed_at, ended as finished_at, and retained_until.
struct KeptAttempt {
    Record record;
    text* how;
};

// The attempts of one key in the order of their ends, in the current memory context.
KeptAttempt* attempts_of(const Identity& id, int* count);

// Removes the attempts of one key. Returns their number.
std::int64_t remove_attempts(const Identity& id);

struct ScopeAttempts {
    text* scope;
    std::int64_t attempts;
};

// A principal's number of attempts per scope, in the current memory context. Reads the whole table.
ScopeAttempts* attempts_by_scope(const text* principal, int* count);

// Removes a principal's attempts, except in some scopes. Reads the whole table. Returns their
// number.
std::int64_t remove_attempts_of(const text* principal, const ArrayType* but_scopes);

// The tables with attempts that this node has, in the current memory context.
Oid* local_attempt_tables(int* count);

// Removes up to `limit` expired attempts of this node, oldest first, and skips locked ones. Returns
// their number.
std::int64_t sweep_attempts(std::int64_t limit);

}  // namespace idem::store
