// Waiting for whoever executes a key.
#pragma once

#include "store/record.hpp"

namespace idem::claim {

// How long a caller is ready to wait, and how it has waited so far. Microseconds of a clock that
// nobody sets.
struct Patience {
    std::int64_t start;
    std::int64_t deadline;
    std::int64_t lease_wait_start;  // of the present one; 0: none
    std::int64_t pause;             // the next one
    bool waited;
};

// `wait` counts from now; kForEver has no end.
Patience patience_for(std::int64_t wait);
std::int64_t time_left(const Patience& patience);
// 0 if it did not wait at all.
std::int64_t time_waited(const Patience& patience);

// Waits for the transaction that holds the key's lock. True if the lock is ours now.
bool wait_for_lock(const store::Identity& id, std::int64_t left);

// Waits for a transaction that has written the row of the key.
void wait_for_writer(TransactionId writer, std::int64_t left);

// A leased claim ends without a signal that another session could sleep on: pauses, longer each
// time, and returns. Honours cancel, statement_timeout, and lock_timeout (55P03), as if the lease
// were a lock.
void wait_for_lease(Patience* patience, std::int64_t left);

}  // namespace idem::claim
