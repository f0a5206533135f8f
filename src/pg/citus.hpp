// Citus as the rest of the module sees it: its catalogs, settings, functions and the names of its
// sessions. Users of Citus rely on these names, so nothing of Citus is linked, and nothing is asked
// where it is not installed.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// Whether the database has the extension of Citus.
bool has_citus();

// ---- where the rows of a table are ----

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

// Within begin_as_owner and end_as_owner: the copy that this node of a cluster has of a table of
// ours, without the schema. In a cluster every node reads its own copy, a plain table: Citus does
// not let each call ask it, one that is part of a query on a shard for example. Nullptr: the table
// is no table of Citus, or this node has no copy yet.
const char* own_copy(const char* table);

// Keeps the shard where it is until the transaction ends, as Citus's own writers do
// (AcquireMetadataLocks): waits for whoever is moving or splitting it. Where it is has to be asked
// again afterwards. `owner` owns the table.
void lock_in_place(std::int64_t shard, Oid owner);

// ---- sessions and transactions ----

// Whether Citus has sent anything of the running transaction to a node, this one included.
bool is_in_transaction_of_citus();

// Whether this session is one of Citus's own, which runs what a session on another node has asked.
bool is_session_of_citus();

// Whether this session answers one of Citus's functions that run a command on nodes
// (run_command_on_all_nodes).
bool answers_command_of_citus();

// ---- settings, until the GUC nest level ends that the caller has opened ----

// Statements on tables of Citus may run also within a query that Citus runs on a shard of this
// node.
void allow_within_tasks();

// Citus does not repeat the DDL that follows on other nodes, which run it themselves. Also where
// Citus is not installed.
void keep_ddl_to_this_node();

// create_distributed_table makes one copy of each shard.
void make_one_copy_of_shards();

// create_reference_table takes tables with triggers.
void take_tables_with_triggers();

}  // namespace idem::pg
