// What Citus knows of a table: whether its rows lie in shards, which shard has a value of the
// column that they are distributed by, and whether this node has that shard. Asked of Citus's
// catalogs, whose names and columns its users rely on, so that nothing of Citus is linked, and
// nothing is asked where it is not installed.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

// A plain table on one node, `idempotency.record_102008` for example.
struct Shard {
    std::int32_t first;  // the hashes of the values whose rows it has
    std::int32_t last;
    std::int64_t number;
    Oid table;                // InvalidOid: another node has it
    TransactionId came_with;  // who made this node the one that has it
};

struct Distribution {
    bool is_distributed;
    int count;      // of the shards; 0: they are not made by the hash of `column`
    Shard* shards;  // in the order of their hashes; allocated with `context`
};

// An error where Citus's catalogs are not what they are known to be, or are lost here and shards of
// the table are not.
Distribution distribution_of(Oid table, const char* column, MemoryContext context);

// The shard with the rows of this value, which is one of type text with a deterministic collation;
// nullptr: none.
const Shard* shard_of(const Distribution& distribution, const text* value);

// Keeps the shard where it is until the transaction ends, as Citus's own writers do
// (AcquireMetadataLocks): waits for whoever is moving or splitting it. Where it is has to be asked
// again afterwards. `owner` owns the table.
void lock_in_place(std::int64_t shard, Oid owner);

// Whether Citus has sent anything of the running transaction to a node, this one included.
bool is_in_transaction_of_citus();

// Whether this session is one of Citus's own, which runs what a session on another node has asked.
bool is_session_of_citus();

}  // namespace idem::store
