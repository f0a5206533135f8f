// Spans of time, and waiting in the lock manager for one.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// By a clock that nobody can set, so that it neither jumps nor steps back: microseconds since some
// moment, comparable within this process alone.
inline std::int64_t monotonic_micros() {
    instr_time now;
    INSTR_TIME_SET_CURRENT(now);
    return static_cast<std::int64_t>(INSTR_TIME_GET_MICROSEC(now));
}

// Waits until the transaction has ended. Honours cancel, statement_timeout, lock_timeout (55P03)
// and deadlock detection (40P01).
void wait_for_transaction(TransactionId transaction);

// Waits until every transaction that has now a lock on the table, in conflict with `mode`, has
// ended, but for VACUUM: prepared ones too, and at most `micros` for all. Returns how many have
// not.
int wait_for_lockers(Oid table, LOCKMODE mode, std::int64_t micros);

// Whether another backend waits for a lock that this one has, advisory ones of that class left out.
bool is_waited_for(std::uint16_t except_class);

// Runs `wait`, which waits for locks of the server and honours what they honour, each at most
// `micros` long. False when that time is over: then all that it did is undone, else it belongs to
// the current (sub)transaction.
bool wait_at_most(std::int64_t micros, void (*wait)(void*), void* argument);

}  // namespace idem::pg
