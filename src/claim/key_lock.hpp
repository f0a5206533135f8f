// The lock of a key: the fast path by which a duplicate learns at once that somebody is at work. A
// transaction-level advisory lock in a class of its own, so it never meets pg_advisory_lock.
//
// The 64-bit hash may collide; then a caller is told "in progress" for no reason, never worse.
#pragma once

#include "store/record.hpp"

namespace idem::claim {

// The lock belongs to the current (sub)transaction and ends with it at the latest.
bool try_lock(const store::Identity& id);

// Waits in the lock manager: honours cancel, statement_timeout, lock_timeout (55P03) and deadlock
// detection (40P01).
void lock(const store::Identity& id);

// Waits at most `micros`; false when that time is over. Errors as lock().
bool lock_within(const store::Identity& id, std::int64_t micros);

// Gives back one lock of this (sub)transaction; each successful call above took one.
void unlock(const store::Identity& id);

}  // namespace idem::claim
