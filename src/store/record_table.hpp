// The table idempotency.record as the server knows it now: looked up once, and again when the
// server says that it has changed. Which store serves it follows from that.
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

// Opens the table if it is plain, nullptr if not; that cannot change while the lock is held.
Relation open_plain_table(LOCKMODE mode);

// The name of a trigger on the table that the server would run at commit, as whoever commits;
// nullptr: there is none. One that SET CONSTRAINTS defers is refused by the server itself, since
// our statements are restricted operations.
const char* deferred_trigger();

// An error, the server's own, where a publication could not pass an update on: the table lacks the
// replica identity, or its filter names other columns.
void check_updates_are_published();

// Called once, when the library is loaded.
void watch_record_table();

}  // namespace idem::store
