// The interface to Citus: its catalogs, settings, functions and the names of its sessions. Users of
// Citus rely on these names. So nothing of Citus is linked, and where it is not installed, nothing
// is asked.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// Whether the database has the extension citus.
bool has_citus();

// Whether this server process has loaded its library. Call it at any time.
bool is_citus_loaded();

// ---- nodes; in a connection to SPI, with any search_path ----

// Host and port of this node: "host:port". nullptr: it has no address.
const char* address_of_this_node();

struct ClusterNode {
    const char* host;
    const char* port;
};
// The active nodes that are no standbys, in the order of their groups.
ClusterNode* active_nodes(int* count);

// The first value of a statement's result on a node, or the reason why it failed there.
struct NodeAnswer {
    bool success;
    const char* result;
};
// Runs a statement on a node, in a transaction of its own.
NodeAnswer run_on_node(const ClusterNode& node, const char* statement);
// Runs a query on each node, this one included, with the current user's rights.
NodeAnswer* run_on_all_nodes(const char* query, int* count);

// Whether another node's metadata are to be made anew, as after a node got another address: until
// then Citus delegates no call to it.
bool is_synchronizing();

// ---- making tables of Citus; within run() of statements.hpp, and Citus must be installed ----

// Why tables can't be distributed from this node; `detail` is nullptr if they can.
struct Obstacle {
    const char* detail;
    const char* hint;
};
// Citus need not be installed. It also has to know the coordinator's address: then the coordinator
// has a copy of reference tables. Without one its backends would miss policy changes made on other
// nodes.
Obstacle obstacle_to_distribution();

// The name includes the schema.
bool is_table_of_citus(const char* table);

// The column by whose hash the table is distributed, with one copy of each shard; nullptr: it is
// not.
const char* distribution_column_of(Oid table);

// Distributes a table by the hash of a column. `beside` is an expression: the table to colocate it
// with, or 'none'. A shard has one copy on one node: our writes would reach only one of several.
// Citus copies rows to the shards and leaves them in the coordinator's table, where no query sees
// them; so they are truncated.
void distribute_table(const char* table, const char* column, const char* beside);

// Makes a reference table: every node has a copy. The table may have triggers.
void distribute_copies(const char* table);

// Each of the functions runs on the node with the records of its argument `principal`. `functions`
// is the FROM clause of a query, with pg_proc as p.
void delegate_functions(const char* functions);

// Runs a command on all nodes but the coordinator. The first failure, with the node's address;
// nullptr: none.
const char* failure_on_workers(const char* command);

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

}  // namespace idem::pg
