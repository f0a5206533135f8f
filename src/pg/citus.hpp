// The interface to Citus: its catalogs, settings, functions and the names of its sessions. Users of
// Citus rely on these names. So nothing of Citus is linked, and where it is not installed, nothing
// is asked.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// Whether the database has the extension citus.
bool has_citus();

// ---- the place of a table's rows ----

// A plain table on one node, `idempotency.record_102008` for example.
struct Shard {
    std::int32_t first;  // the hashes of its values, from `first` to `last`
    std::int32_t last;
    std::int64_t number;
    Oid table;                // InvalidOid: another node has it
    TransactionId came_with;  // that made this node the one that has it
};

struct Distribution {
    bool is_distributed;
    int count;      // of the shards; 0: not made by the hash of `column`
    Shard* shards;  // in the order of their hashes; allocated with `context`
};

// An error if Citus's catalogs have an unknown form, or if this node has lost them and still has
// shards of the table.
Distribution distribution_of(Oid table, const char* column, MemoryContext context);

// The shard with the rows of this value, of type text with a deterministic collation; nullptr:
// none.
const Shard* shard_of(const Distribution& distribution, const text* value);

// Call it within begin_as_owner and end_as_owner. The copy of a table of ours that this node of a
// cluster has, without the schema. Every node reads its own copy, a plain table, because Citus does
// not let each call read the reference table: one in a query on a shard for example. nullptr: the
// table is no table of Citus, or this node has no copy yet.
const char* own_copy(const char* table);

// Keeps the shard in place until the transaction ends, as Citus's own writers do
// (AcquireMetadataLocks). Waits for a session that is moving or splitting it, so ask again
// afterwards where it is. `owner` owns the table.
void lock_in_place(std::int64_t shard, Oid owner);

// ---- sessions and transactions ----

// Whether Citus has sent a part of the running transaction to a node, this one included.
bool is_in_transaction_of_citus();

// Whether this is a session of Citus itself, which runs commands of a session on another node.
bool is_session_of_citus();

// Whether this session answers a Citus function that runs a command on nodes
// (run_command_on_all_nodes).
bool answers_command_of_citus();

// ---- settings, until the end of the GUC nest level that the caller has opened ----

// Lets statements on tables of Citus run also within a query that Citus runs on a shard of this
// node.
void allow_within_tasks();

// Keeps Citus from repeating the following DDL on other nodes, which run it themselves. Works also
// without Citus.
void keep_ddl_to_this_node();

// Makes create_distributed_table create one copy of each shard.
void make_one_copy_of_shards();

// Makes create_reference_table accept tables with triggers.
void take_tables_with_triggers();

}  // namespace idem::pg
