// Waiting in the lock manager for a while.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// Waits until the transaction has ended. Honours cancel, statement_timeout, lock_timeout (55P03)
// and deadlock detection (40P01).
void wait_for_transaction(TransactionId transaction);

// Runs `wait`, which waits for a lock of the server and honours what it honours, at most `micros`
// long. False when that time is over. What it acquires belongs to the current (sub)transaction.
bool wait_at_most(std::int64_t micros, void (*wait)(const void*), const void* argument);

}  // namespace idem::pg
