// The table idempotency.record as the server knows it now: looked up once, and again when the
// server says that it has changed. Which store can serve it follows from that.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

struct RecordTable {
    Oid table;
    Oid primary_key;
    const char* obstacle;  // why only SQL can serve it; nullptr: it is a plain local table
    // Of that, what others cannot have done beside a claim that is open, and which an insertion or
    // update at commit could not bear. A child table that they make, or an index that they build
    // CONCURRENTLY, does not matter to it.
    const char* obstacle_at_commit;
};

// An error if the extension is absent.
const RecordTable& record_table();

// Locked until the transaction ends, after waiting for whoever is changing it. While the lock is
// held, what is said of the table remains true, but for what does not conflict with `mode`.
const RecordTable& lock_record_table(LOCKMODE mode);

// Why only SQL can serve the table now: at commit, where no statement's snapshot is left, as of
// there.
const char* obstacle_now(const RecordTable& table);

// Called once, when the library is loaded.
void watch_record_table();

}  // namespace idem::store
