// The facts about the table are needed before each access, and may change at any time. So they are
// cached until the table changes (pg::Watched), and are valid while a lock on the table is held.
// Every relevant change takes a conflicting lock, and its invalidation is processed when ours is
// granted (LockRelationOid calls AcceptInvalidationMessages). RangeVarGetRelidExtended locks by
// name in the same way: look, lock, look again if something has changed.
//
// Each shard of a distributed table on this node is a table of its own, and is looked at when it is
// first used. Citus's own writers lock a shard in place before they ask where it is
// (CitusBeginModifyScan: AcquireMetadataLocks, then the placements). Our writers do the same, so a
// session that copies the shard to another node misses no row. Readers do not lock in place, like
// Citus's readers. A writer reads again whatever decides about a claim.

#include "store/record_table.hpp"

#include "pg/citus.hpp"
#include "pg/installed.hpp"
#include "pg/owner.hpp"
#include "store/record.hpp"

namespace idem::store {

namespace {

// In the pre-commit callback, or later: no statement runs any more.
bool at_commit() {
    return !ActiveSnapshotSet();
}

// The facts about idempotency.record, and about those of its shards that were asked for. Replaced
// as a whole, because a change may be noted during a look.
struct Known {
    MemoryContext context;  // of everything it points to; nullptr: empty
    RecordTable table;
    pg::Distribution distribution;
    RecordTable* shards;  // as many; one without a table has not been looked at
};
Known known;

// The look holds a lock on the whole table; a shard may have been dropped after its move to another
// node.
RecordTable describe(Oid oid, const pg::Shard& shard) {
    Relation relation = try_relation_open(oid, AccessShareLock);
    if (relation == nullptr) raise_elsewhere();
    RecordTable table{};
    table.table = oid;
    table.owner = relation->rd_rel->relowner;
    table.primary_key = pg::primary_key_of(relation);
    table.partial = partial_indexes_of(relation);
    table.obstacle = obstacle_of(relation, /* at_commit */ false);
    table.obstacle_at_commit = obstacle_of(relation, /* at_commit */ true);
    table.folding_column = folding_column_of(relation);
    table.shard = shard.number;
    table.came_with = shard.came_with;
    table_close(relation, AccessShareLock);
    return table;
}

// Citus finds records by principal: no other distribution keeps the records of one call on one
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
            "It is distributed, but not by the hash of principal.";
    MemoryContextSetParent(next.context, CacheMemoryContext);
    if (known.context != nullptr) MemoryContextDelete(known.context);
    known = next;
}

// Of a shard on this node.
const RecordTable* described(const pg::Shard& shard) {
    RecordTable* table = &known.shards[&shard - known.distribution.shards];
    if (!OidIsValid(table->table)) *table = describe(shard.table, shard);
    return table;
}

// Also watched: the shards that this node has, or had at the last look.
pg::Watched watched = {kRecordTable, learn,
                       [](Oid oid) {
                           for (int i = 0; i < known.distribution.count; i++)
                               if (known.distribution.shards[i].table == oid) return true;
                           return false;
                       },
                       /* opens */ true};

// An open claim outlasts an update of the extension, which can't touch the table meanwhile. A
// change during the look is caught by the next locked look.
void refresh() {
    if (watched.is_current) return;
    if (!at_commit()) pg::check_version();
    pg::look_at(&watched);
}

// Changes made before the lock was granted are known once it is.
const RecordTable& lock_whole(LOCKMODE mode) {
    for (;;) {
        Oid expected = record_table().table;
        LockRelationOid(expected, mode);
        if (record_table().table == expected) return known.table;
        UnlockRelationOid(expected, mode);
    }
}

// The shard that this (sub)transaction locked in place last: asking Citus at each access of a call
// would be expensive.
struct InPlace {
    LocalTransactionId transaction;
    SubTransactionId subtransaction;
    std::int64_t shard;
};
InPlace in_place;

// Citus commits in two phases if it knows of writes to more than one node. It does not know of our
// writes past it, so an effect on another node could commit before the record here. So Citus gets a
// write to see. While it has sent nothing to any node, a write of no shard will do: a later write
// on another node is then not the first (FinishDistributedExecution,
// Activate2PCIfModifyingTransactionExpandsToNewNode).
pg::Statement write_nowhere = {"DELETE FROM idempotency.record WHERE false", 0, nullptr,
                               pg::Access::Whole, nullptr};

// Citus may already have sent a write to another node. Then the write has to be on this node: of a
// row with a key that no record has (ExecuteLocalTaskListExtended). That is expensive. Its plan
// can't be kept, because Citus 13.2 adds another one to it at each run (citusdata/citus#8824).
constexpr Oid kPrincipal[] = {TEXTOID};
pg::Statement write_here = {
    "DELETE FROM idempotency.record WHERE principal = $1 AND scope = '' AND key = ''", 1,
    kPrincipal, pg::Access::ByIndex, nullptr};

// At commit every shard of an open claim is locked already. A session of Citus itself belongs to a
// transaction in which Citus counts it.
void keep_in_place(const RecordTable& table, const text* principal) {
    InPlace now{pg::transaction_number(), GetCurrentSubTransactionId(), table.shard};
    if (at_commit() || memcmp(&now, &in_place, sizeof(now)) == 0) return;
    pg::lock_in_place(table.shard, table.owner);
    // When a logical move gets the lock, it copies what is written of the WAL by then. A commit with
    // synchronous_commit = off, for example a sweeper's, may not be.
    ForceSyncCommit();
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
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("records are not distributed by principal"),
                        errdetail("Citus stores table idempotency.record so that no single node "
                                  "decides about a key."),
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
