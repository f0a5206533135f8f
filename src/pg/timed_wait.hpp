// Waiting in the lock manager for a while.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// Waits until the transaction has ended. Honours cancel, statement_timeout, lock_timeout (55P03)
// and deadlock detection (40P01).
void wait_for_transaction(TransactionId transaction);

// Runs `wait`, which waits for locks of the server and honours what they honour, each at most
// `micros` long. False when that time is over: then all that it did is undone, else it belongs to
// the current (sub)transaction.
bool wait_at_most(std::int64_t micros, void (*wait)(void*), void* argument);

}  // namespace idem::pg
