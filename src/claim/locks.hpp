// Who else is at work on a key: the transaction that has its lock or has written its row, and the
// holder of a claim that was committed. And waiting for them.
//
// The lock is the fast path by which a duplicate learns at once that another session is at work. It
// is a transaction-level advisory lock in a class of its own, so it never meets pg_advisory_lock.
// The 64-bit hash may collide; a caller then gets in_progress without need. Nothing worse follows.
#pragma once

#include "store/record.hpp"

namespace idem::claim {

// The lock belongs to the current (sub)transaction and ends with it at the latest.
bool try_lock(const store::Identity& id);

// The same, for callers that can do without the lock: also false where the lock table is full.
bool try_lock_if_room(const store::Identity& id);

// Waits in the lock manager: honours cancel, statement_timeout, lock_timeout (55P03) and deadlock
// detection (40P01).
void lock(const store::Identity& id);

// Gives back one lock of this (sub)transaction; each successful call above took one.
void unlock(const store::Identity& id);

// Takes the key's lock, and looks. Waits for the transaction that is deciding about the key. False
// if there is no record; the lock is taken all the same.
bool lock_and_find(const store::Identity& id, store::Record* record);

// A transaction that has the lock of a key, or has written its row, and has not ended.
struct KeyHolder {
    bool exists;
    bool is_own;             // the current transaction
    std::int32_t pid;        // 0: it is prepared, runs on another server, or has just ended
    TransactionId prepared;  // InvalidTransactionId: it is not
    int waiting;             // others that wait for the lock; of one that has it
};

// The holder of the lock, other than this transaction, without taking it. On a standby none: locks
// of the primary are not visible there.
KeyHolder holder_of_lock(const store::Identity& id);
// `writer` is a transaction, or a subtransaction, that has written the row.
KeyHolder holder_of_row(TransactionId writer);
KeyHolder this_transaction();

// Microseconds that never end.
inline constexpr std::int64_t kForEver = INT64_MAX;

// How long a caller is ready to wait, and how it has waited so far. Microseconds of a clock that is
// never set.
struct Patience {
    std::int64_t start;
    std::int64_t deadline;
    std::int64_t lease_wait_start;  // of the present one; 0: none
    std::int64_t next_check;        // of the present one: whether it blocks others
    std::int64_t pause;             // the next one
    bool waited;
    bool is_noted;  // the end of the claim will wake this session
    bool gave_way;  // it blocked others, and ended because of that
};

// `wait` counts from now; kForEver has no end.
Patience patience_for(std::int64_t wait);
std::int64_t time_left(const Patience& patience);

// Waits for the transaction that holds the key's lock. True if the lock is ours now.
bool wait_for_lock(const store::Identity& id, std::int64_t left);

// Waits for a transaction that has written the row of the key.
void wait_for_writer(TransactionId writer, std::int64_t left);

// Sleeps until the claim may have ended, and returns: when the session that ends it says so
// (waiters.hpp), when the lease expires, and after a pause. Where sessions can't say so, the pauses
// are short at first. Honours cancel, statement_timeout, and lock_timeout (55P03), as if the lease
// were a lock. After each deadlock_timeout it looks for sessions that wait for a lock of this
// transaction. The claim's holder may be one of them, or wait for one of them. Then the wait ends.
void wait_for_lease(const store::Record& leased, Patience* patience, std::int64_t left);

}  // namespace idem::claim
