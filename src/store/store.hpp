// The records, as the protocol reads and writes them. Which table has the record of a key, and
// which store serves that table, is asked here for each access by itself, and seen nowhere else.
//
// Callers hold the key's lock for every write to one row, so that two transactions never decide
// about one key at once; the unique row is what holds even if they did.
//
// Each access is an error (0A000) where idempotency.store demands the heap store and the table does
// not allow it, and one if the extension is absent.
#pragma once

#include "store/record.hpp"
#include "store/record_table.hpp"

namespace idem::store {

// The newest committed row, or this transaction's own, in any isolation level. Fills `record`, if
// there is one: its identity is the caller's, what else it points to are copies in the current
// memory context. Takes no key lock, assigns no transaction id, works on a standby. Without the
// key's lock, a row that another transaction moves at this very moment may be missed.
Look find(const Identity& id, Record* record);

// What other transactions have done to the row, in versions that are dead by now as well. Without
// this a caller who keeps its snapshot could be granted a key and not see what an earlier attempt
// did.
Past past_of(const Identity& id, Snapshot snapshot);

// Whether another transaction is writing the row, or has locked it, and has not ended; also where
// that can't be known. For who has written early and waited in vain.
bool is_busy(const Identity& id);

// Waits for whoever is changing the table that has the key's record. How its rows are written does
// not change from here on, but by this transaction itself.
void lock_for_writing(const Identity& id);

// Takes the locks that the writes of a claim need and refuses what they would refuse, be it the
// update that ends the claim one day: a commit neither waits nor fails for them, and nobody does
// work whose result could not be recorded.
void reserve(const Identity& id);

// Adds a row. False if the key has one already, after waiting for a transaction that is writing it;
// or an error (40001), where the store cannot take back what it has tried.
bool insert(const Record& record);

// Replaces the row if it is still the expected one, after waiting for a transaction that is writing
// it: a session that does not see uncommitted rows can have the key's lock beside one that has
// given it back. False if it is not.
bool update(const Record& record, const Version& expected);

// Removes the row likewise.
bool remove(const Identity& id, const Version& expected);

// Whether the key's row is read and written past the executor. Two things follow. Others see a row
// before its writer commits: a written row guards its key by itself, and the lock can go. And a
// write runs no code of users, no trigger, rule, check or operator of theirs: only then may it come
// in a transaction callback, where the server expects none; else a claim is written when it is
// granted.
bool bypasses_executor(const Identity& id);

// The errors of an access, without one.
void check_store();

// Which store serves a table, as idempotency.stores shows it. `why` is what keeps the heap store
// from it, or nullptr.
struct Service {
    const char* store;
    const char* why;
};
Service service_of(const RecordTable& table);

}  // namespace idem::store
