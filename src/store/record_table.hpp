// The table idempotency.record as the server knows it now, or the shard of it that has the records
// of a principal: looked up once, and again when the server says that it has changed. Which store
// can serve it follows from that.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

struct RecordTable {
    Oid table;
    Oid owner;
    Oid primary_key;
    Oid index_of_claims;   // one that has claims in progress alone; InvalidOid: none is known
    const char* obstacle;  // why only SQL can serve it; nullptr: it is a plain local table
    const char* obstacle_at_commit;  // of that, what is left at commit: see obstacle.hpp
    const char* folding_column;      // no store can serve it: see obstacle.hpp; nullptr: none
    std::int64_t shard;              // its number; 0: it is idempotency.record itself
    TransactionId came_with;         // of a shard: who made this node the one that has it
};

// idempotency.record itself. An error if the extension is absent.
const RecordTable& record_table();

// Whether it is a table of Citus: its rows lie in shards by the hash of principal, on this node or
// another, or somebody has distributed it in a way that serves nobody, and table_of() refuses it.
bool is_distributed();

// The shard with the records of a principal; nullptr: another node has it.
const RecordTable* table_of(const text* principal);

// The table with the records of a principal, locked until the transaction ends, after waiting for
// whoever is changing it; for more than reading, a shard is kept from being moved as well. While
// the lock is held, what is said of the table remains true, but for what does not conflict with
// `mode`. An error (40001) if another node has it.
const RecordTable& lock_table_of(const text* principal, LOCKMODE mode);

// The shards that this node has, by OID; of a table that is not distributed: none.
List* local_shards();

// The tables with the records that this node has, in the current memory context.
RecordTable* local_tables(int* count);

// Why only SQL can serve the table now: at commit, where no statement's snapshot is left, as of
// there.
const char* obstacle_now(const RecordTable& table);

// The records of a principal have moved to another node (40001).
[[noreturn]] void raise_elsewhere();

// Called once, when the library is loaded.
void watch_record_table();

}  // namespace idem::store
