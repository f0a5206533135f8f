// Sessions that wait for a leased claim to end. A lease is no lock that they could sleep on: each
// notes its key in shared memory, and the transaction that ends the claim wakes it after its
// commit. Where there is no shared memory (until 16, if the library is not preloaded), nothing is
// noted, and a waiter looks again at intervals.
//
// Not every end wakes: a prepared transaction, a session that writes the table by hand, and the end
// of a session whose claim was held do not. So a waiter looks again from time to time anyway.
#pragma once

#include "store/record.hpp"

namespace idem::claim {

// Called while the library is preloaded.
void request_waiter_memory();

// Notes that this session waits for the key, in place of another key that it has noted. After that
// the caller must look at the record once more before it sleeps on its latch. False if there is no
// shared memory.
bool note_waiting(const store::Identity& id);

// The session waits no longer. Does nothing if it does not.
void note_waiting_ended();

// The current transaction ends the committed claim of the key.
void wake_waiters_at_commit(const store::Identity& id);

// For the end of each transaction, once its changes are visible, or lost. One that is prepared
// counts as rolled back here.
void settle_waiters(bool committed);

}  // namespace idem::claim
