// The table idempotency.record as the server knows it now, or its shard with the records of a
// principal. Looked up once, and again when the server reports a change. It determines which store
// can serve it.
#pragma once

#include "pg/pg.hpp"
#include "store/obstacle.hpp"

namespace idem::store {

struct RecordTable {
    Oid table;
    Oid owner;
    Oid primary_key;
    PartialIndexes partial;  // those that the heap store passes over
    const char* obstacle;    // why only SQL can serve it; nullptr: it is a plain local table
    const char* obstacle_at_commit;  // the part of it that remains at commit: see obstacle.hpp
    const char* folding_column;      // no store can serve it: see obstacle.hpp; nullptr: none
    std::int64_t shard;              // its number; 0: it is idempotency.record itself
    TransactionId came_with;         // of a shard: that made this node the one that has it
};

// idempotency.record itself. An error if the extension is absent.
const RecordTable& record_table();

// Whether it is a table of Citus: its rows lie in shards by the hash of principal, on this node or
// another. If it was distributed in an unusable way, table_of() refuses it.
bool is_distributed();

// The shard with the records of a principal; nullptr: another node has it.
const RecordTable* table_of(const text* principal);

// Locks the table with the records of a principal until the transaction ends, after waiting for a
// session that is changing it. For more than reading, it also locks a shard in place. While the
// lock is held, the facts about the table remain true, except for changes that do not conflict with
// `mode`. An error (40001) if another node has it.
const RecordTable& lock_table_of(const text* principal, LOCKMODE mode);

// The shards that this node has, by OID; none if the table is not distributed.
List* local_shards();

// The tables with the records that this node has, in the current memory context.
RecordTable* local_tables(int* count);

// Why only SQL can serve the table now. At commit, where no statement's snapshot is left: the
// obstacle at commit.
const char* obstacle_now(const RecordTable& table);

// The records of a principal have moved to another node (40001).
[[noreturn]] void raise_elsewhere();

// Called once, when the library is loaded.
void watch_record_table();

}  // namespace idem::store
