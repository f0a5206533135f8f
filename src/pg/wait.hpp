// Clocks, and bounded waits in the lock manager.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// A monotonic clock: it neither jumps nor steps back when the time of day is set. Microseconds
// since an unspecified moment, comparable within this process only.
inline std::int64_t monotonic_micros() {
    instr_time now;
    INSTR_TIME_SET_CURRENT(now);
    return static_cast<std::int64_t>(INSTR_TIME_GET_MICROSEC(now));
}

// Waits until the transaction has ended. Honours cancel, statement_timeout, lock_timeout (55P03)
// and deadlock detection (40P01).
void wait_for_transaction(TransactionId transaction);

// Waits, at most `micros` for all, for the transactions that now hold a lock on the table in
// conflict with `mode`: prepared ones too, VACUUM not. Returns how many have not ended.
int wait_for_lockers(Oid table, LOCKMODE mode, std::int64_t micros);

// Whether another backend waits for a lock of this one, except advisory locks of that class.
bool is_waited_for(std::uint16_t except_class);

// Runs `wait`, which waits for locks of the server and honours what they honour, each at most
// `micros` long. False after a timeout: all that it did is undone. True: it belongs to the current
// (sub)transaction.
bool wait_at_most(std::int64_t micros, void (*wait)(void*), void* argument);

}  // namespace idem::pg
