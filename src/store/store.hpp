// The records, as the protocol reads and writes them. Only this part knows which table has the
// record of a key, and which store serves that table. It asks for each access.
//
// Callers hold the key's lock for every write to one row, so two transactions never decide about
// one key at once. If they did, the unique row would still hold.
//
// Each access is an error (0A000) if idempotency.store requires the heap store and the table does
// not allow it, and an error if the extension is absent.
#pragma once

#include "store/record.hpp"
#include "store/record_table.hpp"

namespace idem::store {

// The newest committed row, or this transaction's own, in any isolation level. Fills `record`, if
// there is one: its identity is the caller's, its other values are copies in the current memory
// context. Takes no key lock, assigns no transaction id, works on a standby. Without the key's
// lock, it may miss a row that another transaction moves at this very moment.
Look find(const Identity& id, Record* record);

// What other transactions have done to the row, including versions that are dead by now. Without
// this a caller with an old snapshot could be granted a key and miss the effects of an earlier
// attempt.
Past past_of(const Identity& id, Snapshot snapshot);

// Whether another running transaction is writing the row, or has locked it; true if that is
// unknown. For a caller that wrote early and waited in vain.
bool is_busy(const Identity& id);

// Waits for a session that is changing the table with the key's record. From here on, only this
// transaction itself changes how its rows are written.
void lock_for_writing(const Identity& id);

// Takes the locks that the writes of a claim need, and raises the errors that they would raise,
// including the update that ends the claim later. So a commit neither waits nor fails for them, and
// no work is done whose result could not be recorded.
void reserve(const Identity& id);

// Adds a row, after waiting for a transaction that is writing the same key. False if the key has
// one already. An error (40001) instead, if the store cannot undo its attempt.
bool insert(const Record& record);

// Adds rows of one principal, in the order of their keys. False if one of the keys has a row
// already; the transaction has to end then.
bool insert_all(const Record* records, int count);

// Replaces the row if it is still the expected one; false if it is not. Waits for a transaction
// that is writing it: a session that does not see uncommitted rows can get the key's lock while a
// transaction that has released it still runs.
bool update(const Record& record, const Version& expected);

// Removes the row likewise.
bool remove(const Identity& id, const Version& expected);

// Whether the key's row is read and written past the executor. Two things follow. Others see a row
// before its writer commits: a written row guards its key by itself, and the lock can be released.
// And a write runs no code of users: no trigger, rule, check or operator. Only then may it happen
// in a transaction callback, where the server expects no such code. Otherwise a claim is written
// when it is granted.
bool bypasses_executor(const Identity& id);

// Raises the errors of an access, without one.
void check_store();

// The store that serves a table, as idempotency.stores shows it. `why` is the obstacle to the heap
// store, or nullptr.
struct Service {
    const char* store;
    const char* why;
};
Service service_of(const RecordTable& table);

}  // namespace idem::store
