// The seam to the table of records. Implementations behave the same and pass the same tests.
//
// Callers hold the key's lock for every write to one row, so that two transactions never decide
// about one key at once; the unique row is what holds even if they did.
#pragma once

#include "store/record.hpp"

namespace idem::store {

// What a look at the row of a key has found.
struct Look {
    bool found;            // there is a row
    TransactionId writer;  // another transaction that has written the row and may yet commit;
                           // InvalidTransactionId: none, or a store that cannot see it
};

// What to sweep: rows whose retention ended after `from` and not after `until`, at most `limit` of
// them. A caller who goes on where the last batch ended need not walk over its dead rows again.
// `swept`, which may be nullptr, is told how many rows of which scope went.
struct Sweep {
    TimestampTz from;
    TimestampTz until;
    std::int64_t limit;
    void (*swept)(std::string_view scope, std::int64_t rows);
};

struct Swept {
    std::int64_t rows;
    TimestampTz last;  // when the retention of the youngest of them ended
};

struct Store {
    // The newest committed row, or this transaction's own, in any isolation level. Fills `record`,
    // if there is one: its identity is the caller's, what else it points to are copies in the
    // current memory context. Takes no key lock, assigns no transaction id, works on a standby.
    // Without the key's lock, a row that another transaction moves at this very moment may be
    // missed.
    Look (*find)(const Identity& id, Record* record);

    // Whether the snapshot knows all that other transactions have done to the row: no version of
    // it, dead ones included, was made or removed by one that the snapshot does not see. Without
    // this a caller who keeps its snapshot could be granted a key and not see what an earlier
    // attempt did.
    bool (*known_to)(Snapshot snapshot, const Identity& id);

    // Whether another transaction is writing the row, or has locked it, and has not ended; also
    // where that can't be known. For stores that write early and have waited in vain.
    bool (*is_busy)(const Identity& id);

    // Takes the locks that the writes of a claim need and refuses what they would refuse, be it the
    // update that ends the claim one day: a commit neither waits nor fails for them, and nobody
    // does work whose result could not be recorded.
    void (*reserve)();

    // Adds a row. False if the key has one already, after waiting for a transaction that is writing
    // it; or an error (40001), where the store cannot take back what it has tried.
    bool (*insert)(const Record& record);

    // Replaces the row if it is still the expected one, after waiting for a transaction that is
    // writing it: a session that does not see uncommitted rows can have the key's lock beside one
    // that has given it back. False if it is not.
    bool (*update)(const Record& record, const Version& expected);

    // Removes the row likewise.
    bool (*remove)(const Identity& id, const Version& expected);

    // Removes rows that may go, oldest first, passing over rows that others have locked. Never a
    // row without a result: it may still get one.
    Swept (*sweep)(const Sweep& which);

    // Whether others see a row before its writer commits. Then a written row guards its key by
    // itself, and the lock can go.
    bool rows_guard_themselves;

    // Whether a write runs no code of users: no trigger, rule, check or operator of theirs. Only
    // then may it come in a transaction callback, where the server expects none; else a claim is
    // written when it is granted.
    bool writes_in_callbacks;
};

// SQL through SPI: single-row statements that a distributed table can route. The reference.
extern const Store sql_store;

// Index look-ups and writes through the table access method, without an executor.
extern const Store heap_store;

// The store of this database's table, as idempotency.store chooses it. An error (0A000) if that is
// the heap store and the table does not allow it.
const Store& records();

// For a caller who has lost to another transaction: a serialization failure (40001).
[[noreturn]] void raise_claim_overtaken();

}  // namespace idem::store
