// `hold`: a session-level lock that tells whether the session which made a claim still lives. It
// carries no exclusion (session locks survive rollbacks); it only shortens the wait for a lease.
#pragma once

#include "store/record.hpp"

namespace idem::claim {

// Takes the session's lock for a claim. False if it can't be had: then the lease alone serves.
bool hold(const store::Identity& id, std::int64_t token);

// Whether no session holds the lock of this record any more.
bool holder_is_gone(const store::Identity& id);

// The claim has ended, or is about to: the lock is given back when this transaction commits.
void let_go_at_commit(const store::Identity& id, std::int64_t token);

// The claim is lost: its lock is of no use any more, however this transaction ends.
void let_go_now(const store::Identity& id, std::int64_t token);

// Transaction ends, called by the transaction callbacks. A hold taken in a (sub)transaction that
// rolls back is given back, and one that was let go there is kept.
void liveness_commit();
void liveness_prepare();
void liveness_abort();
void liveness_subcommit(int level);
void liveness_subabort(int level);

}  // namespace idem::claim
