// What the table is, is asked before each access, and it may change at any time. So the answer is
// kept until the table changes (pg::Watched); it is good for as long as a lock on the table is
// held, since every change that matters here takes one that conflicts and has been heard of when
// ours is granted (LockRelationOid calls AcceptInvalidationMessages). RangeVarGetRelidExtended
// locks by name in the same way: look, lock, look again if something has changed.
//
// Of a distributed table, each shard that this node has is a table of its own, and is looked at
// when it is first used. Citus's own writers lock a shard in place before they ask where it is
// (CitusBeginModifyScan: AcquireMetadataLocks, then the placements), and so do ours: no row is
// written behind the back of who copies the shard to another node. Who only reads does not, like
// Citus's readers; what decides about a claim is read again by who writes it.

#include "store/record_table.hpp"

#include "pg/citus.hpp"
#include "pg/installed.hpp"
#include "pg/owner.hpp"
#include "store/obstacle.hpp"
#include "store/record.hpp"

namespace idem::store {

namespace {

// After the statements of a transaction are over.
bool at_commit() {
    return !ActiveSnapshotSet();
}

// What is known of idempotency.record, and of those of its shards that have been asked for. It is
// replaced as a whole, for a change may be noted while it is being learned anew.
struct Known {
    MemoryContext context;  // of all that it points to; nullptr: of nothing
    RecordTable table;
    pg::Distribution distribution;
    RecordTable* shards;  // as many; one without a table has not been looked at
};
Known known;

// The whole table is locked for the look; a shard may have been dropped where it has moved away.
RecordTable describe(Oid oid, const pg::Shard& shard) {
    Relation relation = try_relation_open(oid, AccessShareLock);
    if (relation == nullptr) raise_elsewhere();
    RecordTable table{};
    table.table = oid;
    table.owner = relation->rd_rel->relowner;
    table.primary_key = pg::primary_key_of(relation);
    table.index_of_claims = index_of_claims(relation);
    table.obstacle = obstacle_of(relation);
    table.obstacle_at_commit = obstacle_at_commit_of(relation);
    table.folding_column = folding_column_of(relation);
    table.shard = shard.number;
    table.came_with = shard.came_with;
    table_close(relation, AccessShareLock);
    return table;
}

// By Citus, the records are found by principal: nothing else would keep those of one call on one
// node.
void learn(Oid oid) {
    Known next{};
    next.context =
        AllocSetContextCreate(CurrentMemoryContext, "idempotency shards", ALLOCSET_SMALL_SIZES);
    next.table = describe(oid, pg::Shard{});
    next.distribution =
        pg::distribution_of(oid, column_of(&Identity::principal).name, next.context);
    Size size = sizeof(RecordTable) * static_cast<Size>(next.distribution.count);
    next.shards = static_cast<RecordTable*>(MemoryContextAllocZero(next.context, size));
    if (next.distribution.is_distributed)
        next.table.obstacle = next.table.obstacle_at_commit =
            "It is distributed, and not by the hash of principal.";
    MemoryContextSetParent(next.context, CacheMemoryContext);
    if (known.context != nullptr) MemoryContextDelete(known.context);
    known = next;
}

// One of this node's.
const RecordTable* described(const pg::Shard& shard) {
    RecordTable* table = &known.shards[&shard - known.distribution.shards];
    if (!OidIsValid(table->table)) *table = describe(shard.table, shard);
    return table;
}

// Also watched: the shards that this node has, or had when they were last asked for.
pg::Watched watched = {kRecordTable, learn,
                       [](Oid oid) {
                           for (int i = 0; i < known.distribution.count; i++)
                               if (known.distribution.shards[i].table == oid) return true;
                           return false;
                       },
                       /* opens */ true};

// An open claim outlasts the change to another version, which can't touch the table beside it. What
// is no longer true when the look is over is found out by the next caller, who may have a lock.
void refresh() {
    if (watched.is_current) return;
    if (!at_commit()) pg::check_version();
    pg::look_at(&watched);
}

// What changed before the lock was granted has been heard of when it is.
const RecordTable& lock_whole(LOCKMODE mode) {
    for (;;) {
        Oid expected = record_table().table;
        LockRelationOid(expected, mode);
        if (record_table().table == expected) return known.table;
        UnlockRelationOid(expected, mode);
    }
}

// Which shard this (sub)transaction has locked in place last: to ask Citus for each access of a
// call would be dear.
struct InPlace {
    LocalTransactionId transaction;
    SubTransactionId subtransaction;
    std::int64_t shard;
};
InPlace in_place;

// Citus commits in two phases if it knows of more than one node that was written to, and of what is
// written past it, it knows nothing: the effect on another node would commit before the record
// here. So it is given a write to see. While it has sent nothing to any node, a write of no shard
// will do: whatever is written on another node later is then not the first
// (FinishDistributedExecution, Activate2PCIfModifyingTransactionExpandsToNewNode).
pg::Statement write_nowhere = {"DELETE FROM idempotency.record WHERE false", 0, nullptr,
                               pg::Access::Whole, nullptr};

// What another node was sent before may have been a write. So it has to be one of this node, of the
// row that no key has (ExecuteLocalTaskListExtended). That is dear; and a plan of it can't be kept,
// because Citus 13.2 adds another one to it each time it runs (citusdata/citus#8824).
constexpr Oid kPrincipal[] = {TEXTOID};
pg::Statement write_here = {
    "DELETE FROM idempotency.record WHERE principal = $1 AND scope = '' AND key = ''", 1,
    kPrincipal, pg::Access::ByIndex, nullptr};

// At commit every shard of an open claim has been locked long since. A session of Citus's own
// belongs to a transaction in which Citus counts it.
void keep_in_place(const RecordTable& table, const text* principal) {
    InPlace now{pg::transaction_number(), GetCurrentSubTransactionId(), table.shard};
    if (at_commit() || memcmp(&now, &in_place, sizeof(now)) == 0) return;
    pg::lock_in_place(table.shard, table.owner);
    if (!pg::is_session_of_citus()) {
        int guc_level = NewGUCNestLevel();
        // The call may be part of a query that Citus runs on a shard of this node
        // (IsTaskExecutionAllowed). The write is of this node, too.
        pg::allow_within_tasks();
        bool is_first = !pg::is_in_transaction_of_citus();
        Datum value = PointerGetDatum(principal);
        (void)pg::write_alone(kRecordTable, is_first ? &write_nowhere : &write_here, &value,
                              nullptr);
        if (!is_first) pg::drop_plan(&write_here);
        AtEOXact_GUC(false, guc_level);
    }
    AcceptInvalidationMessages();
    in_place = now;
}

const RecordTable& lock_shard(const text* principal, LOCKMODE mode) {
    for (;;) {
        const RecordTable* table = table_of(principal);
        if (table == nullptr) raise_elsewhere();
        Oid expected = table->table;
        if (mode != AccessShareLock) keep_in_place(*table, principal);
        LockRelationOid(expected, mode);
        table = table_of(principal);
        if (table != nullptr && table->table == expected) return *table;
        UnlockRelationOid(expected, mode);
    }
}

}  // namespace

const RecordTable& record_table() {
    refresh();
    return known.table;
}

bool is_distributed() {
    refresh();
    return known.distribution.is_distributed;
}

const RecordTable* table_of(const text* principal) {
    refresh();
    if (known.distribution.is_distributed && known.distribution.count == 0)
        ereport(
            ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             errmsg("records are not distributed by principal"),
             errdetail("Citus has table idempotency.record in a way in which no node is the one "
                       "that decides about a key."),
             errhint("Dump the database, restore it, and call idem_distribute().")));
    const pg::Shard* shard = pg::shard_of(known.distribution, principal);
    if (shard == nullptr || !OidIsValid(shard->table)) return nullptr;
    return described(*shard);
}

RecordTable* local_tables(int* count) {
    refresh();
    Size size = sizeof(RecordTable) * static_cast<Size>(known.distribution.count + 1);
    auto* tables = static_cast<RecordTable*>(palloc(size));
    *count = 0;
    if (known.distribution.count == 0) tables[(*count)++] = known.table;
    for (int i = 0; i < known.distribution.count; i++) {
        const pg::Shard& shard = known.distribution.shards[i];
        if (OidIsValid(shard.table)) tables[(*count)++] = *described(shard);
    }
    return tables;
}

List* local_shards() {
    refresh();
    List* shards = NIL;
    for (int i = 0; i < known.distribution.count; i++) {
        Oid table = known.distribution.shards[i].table;
        if (OidIsValid(table)) shards = lappend_oid(shards, table);
    }
    return shards;
}

const RecordTable& lock_table_of(const text* principal, LOCKMODE mode) {
    return is_distributed() ? lock_shard(principal, mode) : lock_whole(mode);
}

const char* obstacle_now(const RecordTable& table) {
    return at_commit() ? table.obstacle_at_commit : table.obstacle;
}

void raise_elsewhere() {
    ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                    errmsg("the records of this principal are on another node"),
                    errdetail("Their shard has moved since this call was sent here."),
                    errhint("Roll back and retry the transaction.")));
    pg_unreachable();
}

void watch_record_table() {
    pg::watch(&watched);
}

}  // namespace idem::store
