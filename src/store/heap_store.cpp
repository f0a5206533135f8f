// Reads and writes the table of records through index scan, table access method and index insert.
// It uses no executor, no SPI, no change of user, and so runs no code of users. obstacle.cpp looks
// for everything else that the executor would do (triggers, rules, partitions, generated columns,
// check constraints). If it finds any, the SQL store serves. This code does not know which table it
// is given.
//
// PostgreSQL does the same in two places. Its catalogs are written by CatalogTupleInsert and
// CatalogTupleUpdate, with index entries by CatalogIndexInsert. Logical replication finds a row
// with RelationFindReplTupleByIndex and changes it with ExecSimpleRelationUpdate. Those end in
// simple_heap_update and simple_table_tuple_update, which fail with "tuple concurrently updated". A
// change here looks at the next version instead, and decides again.
//
// Invariants:
// - A key has one row. The primary key's entry is inserted with UNIQUE_CHECK_YES, which waits for a
//   session that is inserting the same key.
// - store.cpp picks this store for the table and locks it: with AccessShareLock for a look, with
//   RowExclusiveLock for all else. The table was plain when the lock was granted.
// - A row is replaced or removed only if it is the version that the caller has seen.
// - No snapshot filters a look (one is active for detoasting). A look takes no predicate lock and
//   no transaction id.
// - Each write is a command of its own: later parts of the same statement see it, and it can change
//   earlier writes of the statement.

#include "store/implementation.hpp"
#include "store/obstacle.hpp"

namespace idem::store {

namespace {

// ---- a look at the row of a key ----
//
// Uses a dirty snapshot, as RelationFindReplTupleByIndex and check_exclusion_or_unique_constraint
// do. The index scan meets the newest committed version, our own, and uncommitted ones of other
// transactions. Those two functions wait for the other transactions; this look only reports them.
// For a non-MVCC snapshot the scan keeps the leaf page pinned while it visits the table. So VACUUM
// does not reuse a line pointer that the scan has read.

// The result of one walk over the versions of the row.
struct Walk {
    Look look;
    List* others;  // (sub)transactions whose end would change the result
};

// Lists of transaction ids came with version 16; lists of OIDs have the same width.
static_assert(sizeof(TransactionId) == sizeof(Oid));

// HeapTupleSatisfiesDirty leaves a transaction in the snapshot: the one that is inserting the
// version just met, or else the one that is replacing or removing it. It does not report a
// transaction that only locks it. Each reported one is a writer: a row that is being removed is
// still found, and no caller may continue with it until the removal commits or aborts.
Walk walk_versions(IndexScanDesc scan, const SnapshotData& snapshot, TupleTableSlot* version,
                   TupleTableSlot* found) {
    Walk walk{{false, InvalidTransactionId, false}, NIL};
    while (index_getnext_slot(scan, ForwardScanDirection, version)) {
        bool is_new = TransactionIdIsValid(snapshot.xmin);
        TransactionId other = is_new ? snapshot.xmin : snapshot.xmax;
        if (TransactionIdIsValid(other)) {
            walk.look.writer = other;
            walk.others = list_append_unique_oid(walk.others, other);
        }
        if (is_new) {
            walk.look.has_new_version = true;
        } else {
            ExecCopySlot(found, version);
            walk.look.found = true;
        }
    }
    return walk;
}

// The race: another transaction has replaced the row. The scan meets the new version while that
// transaction runs, and skips it. It meets the old version after the commit, as a dead one. So it
// would miss a row that was there all the time. So if one of the others has ended meanwhile, the
// scan saw some versions as of before its end and some as of after. There may be several: a
// transaction writes the row under a separate id in each savepoint.
//
// One case is not noticed: a transaction begins to write after the scan has passed the place of the
// new version, and commits before the scan reaches the old one. See find in store.hpp.
bool is_consistent(const Walk& walk) {
    ListCell* cell;
    foreach (cell, walk.others)
        if (!TransactionIdIsInProgress(lfirst_oid(cell))) return false;
    return true;
}

// The slot is of the table's kind; a row that is found stays pinned in it.
Look look_at_row(Relation table, Relation index, const Identity& id, TupleTableSlot* slot) {
    ScanKeyData keys[kKeyColumns];
    for (int i = 0; i < kKeyColumns; i++)
        ScanKeyEntryInitialize(&keys[i], 0, static_cast<AttrNumber>(i + 1), BTEqualStrategyNumber,
                               InvalidOid, index->rd_indcollation[i], F_TEXTEQ,
                               PointerGetDatum(id.*kPrimaryKey[i]));
    SnapshotData snapshot;
    InitDirtySnapshot(snapshot);
    TupleTableSlot* version = table_slot_create(table, nullptr);
    IndexScanDesc scan = pg::index_beginscan(table, index, &snapshot, kKeyColumns);
    Walk walk{};
    do {
        CHECK_FOR_INTERRUPTS();
        list_free(walk.others);
        index_rescan(scan, keys, kKeyColumns, nullptr, 0);
        walk = walk_versions(scan, snapshot, version, slot);
    } while (!is_consistent(walk));
    list_free(walk.others);
    index_endscan(scan);
    ExecDropSingleTupleTableSlot(version);
    return walk.look;
}

// ---- index entries ----
//
// As CatalogIndexInsert does. The entries need no EState if no index has an expression or a
// predicate other than the known ones, no unique index is deferrable, and none is an exclusion
// constraint. is_plain() in obstacle.cpp checks that. Two things are as in ExecInsertIndexTuples.
// An update tells the primary key that the key is unchanged, so a B-tree can delete entries of dead
// versions before it splits a page. And a summarizing index is told of HOT updates.

core::Status status_in(TupleTableSlot* slot) {
    bool is_null;
    Datum status = slot_getattr(slot, attribute_of(&Record::status), &is_null);
    return static_cast<core::Status>(DatumGetChar(status));
}

// Rows that know their places. All of them have entries in the same indexes.
struct Placed {
    TupleTableSlot** slots;
    int count;
};

void add_entries(Relation table, Relation index, const Placed& rows, bool key_unchanged) {
    IndexInfo* info = BuildIndexInfo(index);
    if (info->ii_ReadyForInserts) {
        bool unique = index->rd_index->indisunique;
        Datum values[INDEX_MAX_KEYS];
        bool nulls[INDEX_MAX_KEYS];
        for (int i = 0; i < rows.count; i++) {
            TupleTableSlot* slot = rows.slots[i];
            FormIndexDatum(info, slot, nullptr, values, nulls);
            (void)index_insert(index, values, nulls, &slot->tts_tid, table,
                               unique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, unique && key_unchanged,
                               info);
        }
        pg::index_insert_cleanup(index, info);
    }
    pfree(info);
}

// The kinds of rows that a row is of, and the partial indexes that it has no entry in.
struct Kinds {
    bool outstanding;
    bool due;
    bool sealed;

    bool belongs_to(Rows rows) const {
        return rows == Rows::All || (rows == Rows::Sealed ? sealed
                                     : rows == Rows::Due  ? due
                                                          : outstanding);
    }
};

Kinds kinds_of(TupleTableSlot* slot) {
    core::Status status = status_in(slot);
    return {core::is_outstanding(status), status == core::Status::Retryable,
            !slot_attisnull(slot, attribute_of(&Record::sealed_by))};
}

// Inserts entries of rows into the wanted indexes. An error (23505) if a row is new and its key
// exists already.
//
// Most rows are written with their answer and in the clear, so the partial indexes are not opened
// for them. Another partial index may have been built or replaced CONCURRENTLY since, or there may
// be several; such an index is opened and asked.
template <typename Wanted>
void add_entries_if(Relation table, const PartialIndexes& partial, const Placed& rows,
                    bool key_unchanged, Wanted wanted) {
    Kinds row = kinds_of(rows.slots[0]);
    List* indexes = RelationGetIndexList(table);
    ListCell* cell;
    foreach (cell, indexes) {
        Oid oid = lfirst_oid(cell);
        if (!row.outstanding && oid == partial.outstanding) continue;
        if (!row.due && oid == partial.due) continue;
        if (!row.sealed && oid == partial.sealed) continue;
        bool is_known = oid == partial.outstanding || oid == partial.due || oid == partial.sealed;
        Relation index = index_open(oid, RowExclusiveLock);
        if (wanted(index) && (is_known || row.belongs_to(rows_of(index))))
            add_entries(table, index, rows, key_unchanged);
        index_close(index, NoLock);
    }
    list_free(indexes);
}

// ---- the row of a key, open ----

struct OpenRow {
    Relation table;
    Relation index;
    TupleTableSlot* slot;
    Look look;
    bool snapshot_pushed;
};

// Every call of the protocol checks whether the transaction may write; this does not check again.
// What was allowed at the grant is allowed at commit. The same holds for a publication, whose
// replica identity may lack a changed row's columns: reserve() has checked that, because at commit
// no statement's snapshot is left.
Relation open_for_writing(const RecordTable& in, CmdType command) {
    // A version written by this very command could not be changed.
    CommandCounterIncrement();
    Relation table = table_open(in.table, NoLock);
    if (ActiveSnapshotSet()) CheckCmdReplicaIdentity(table, command);
    return table;
}

// At commit no statement's snapshot is left, and toasted values need one.
bool push_snapshot() {
    if (ActiveSnapshotSet()) return false;
    PushActiveSnapshot(GetLatestSnapshot());
    return true;
}

OpenRow open_row(Relation table, Oid primary_key, const Identity& id) {
    OpenRow row{};
    row.table = table;
    row.index = index_open(primary_key, AccessShareLock);
    row.snapshot_pushed = push_snapshot();
    row.slot = table_slot_create(row.table, nullptr);
    row.look = look_at_row(row.table, row.index, id, row.slot);
    return row;
}

void close_row(const OpenRow& row) {
    ExecDropSingleTupleTableSlot(row.slot);
    if (row.snapshot_pushed) PopActiveSnapshot();
    index_close(row.index, NoLock);
    table_close(row.table, NoLock);
}

Version version_in(TupleTableSlot* slot) {
    constexpr AttrNumber token = attribute_of(&Record::token);
    constexpr AttrNumber lease_until = attribute_of(&Record::lease_until);
    bool is_null;
    Version version{};
    version.token = DatumGetInt64(slot_getattr(slot, token, &is_null));
    version.status = status_in(slot);
    Datum until = slot_getattr(slot, lease_until, &is_null);
    version.lease_until = is_null ? pg::kNoTime : DatumGetTimestampTz(until);
    return version;
}

// A record as a slot that the table access method takes. The values point into the record. Any
// columns after ours were dropped.
TupleTableSlot* slot_of(const Record& record, Relation table) {
    TupleTableSlot* slot = MakeSingleTupleTableSlot(RelationGetDescr(table), &TTSOpsVirtual);
    to_columns(record, slot->tts_values, slot->tts_isnull);
    int columns = slot->tts_tupleDescriptor->natts;
    for (int i = kColumnCount; i < columns; i++) slot->tts_isnull[i] = true;
    return ExecStoreVirtualTuple(slot);
}

// ---- the store ----

Look find(const RecordTable& in, const Identity& id, Record* record) {
    OpenRow row = open_row(table_open(in.table, NoLock), in.primary_key, id);
    if (row.look.found) {
        record->id = id;
        slot_getallattrs(row.slot);
        from_columns(row.slot->tts_values, row.slot->tts_isnull, record);
    }
    close_row(row);
    return row.look;
}

// Locks the indexes too: at commit, no lock may be waited for. Claims are written then, and a claim
// has no entry among the failed attempts.
void reserve(const RecordTable& in) {
    Relation table = table_open(in.table, NoLock);
    CheckCmdReplicaIdentity(table, CMD_UPDATE);
    List* indexes = RelationGetIndexList(table);
    ListCell* cell;
    foreach (cell, indexes)
        if (lfirst_oid(cell) != in.partial.due) LockRelationOid(lfirst_oid(cell), RowExclusiveLock);
    list_free(indexes);
    table_close(table, NoLock);
}

// Several rows get one WAL record for each page. Their keys are guarded as that of one row: by the
// locks that the caller has, and by the primary key, whose entries are inserted one by one.
void insert_rows(Relation table, const Placed& rows) {
    CommandId command = GetCurrentCommandId(true);
    if (rows.count == 1)
        table_tuple_insert(table, rows.slots[0], command, 0, nullptr);
    else
        table_multi_insert(table, rows.slots, rows.count, command, 0, nullptr);
}

// `rows` has room for a slot of each record.
bool insert_as(const RecordTable& in, const Record* records, const Placed& rows) {
    Relation table = open_for_writing(in, CMD_INSERT);
    bool snapshot_pushed = push_snapshot();
    for (int i = 0; i < rows.count; i++) rows.slots[i] = slot_of(records[i], table);
    MemoryContext context = CurrentMemoryContext;
    PG_TRY();
    {
        insert_rows(table, rows);
        add_entries_if(table, in.partial, rows, /* key_unchanged */ false,
                       [](Relation) { return true; });
    }
    PG_CATCH();
    {
        // The row decides: only a writer that bypasses our lock causes this. The tuple is in the
        // table already, so the transaction has to end.
        MemoryContextSwitchTo(context);
        ErrorData* error = CopyErrorData();
        if (error->sqlerrcode != ERRCODE_UNIQUE_VIOLATION) PG_RE_THROW();
        FlushErrorState();
        raise_claim_overtaken();
    }
    PG_END_TRY();
    for (int i = 0; i < rows.count; i++) ExecDropSingleTupleTableSlot(rows.slots[i]);
    if (snapshot_pushed) PopActiveSnapshot();
    table_close(table, NoLock);
    CommandCounterIncrement();
    return true;
}

bool insert(const RecordTable& in, const Record& record) {
    TupleTableSlot* slot;
    return insert_as(in, &record, {&slot, 1});
}

bool insert_all(const RecordTable& in, const Record* records, int count) {
    Size size = sizeof(TupleTableSlot*) * static_cast<Size>(count);
    auto** slots = static_cast<TupleTableSlot**>(palloc(size));
    bool inserted = insert_as(in, records, {slots, count});
    pfree(slots);
    return inserted;
}

// Changes the row. If a writer that bypasses our lock changes it at the same moment, waits for that
// writer and changes the next version. False if the row is gone or is no longer the expected one.
template <typename Change>
bool change_row(const OpenRow& opened, const Identity& id, const Version& expected, Change change) {
    OpenRow row = opened;
    bool changed = false;
    while (row.look.found && is_version(version_in(row.slot), expected)) {
        changed = change(row.table, &row.slot->tts_tid) == TM_Ok;
        if (changed) break;
        ExecClearTuple(row.slot);
        row.look = look_at_row(row.table, row.index, id, row.slot);
    }
    close_row(row);
    // Later parts of the same statement see it.
    CommandCounterIncrement();
    return changed;
}

TM_Result replace_version(Relation table, const PartialIndexes& partial, ItemPointer place,
                          const Record& record) {
    TupleTableSlot* slot = slot_of(record, table);
    TM_FailureData failure;
    LockTupleMode lock_mode;
    pg::NeedsEntries needs;
    TM_Result result =
        pg::table_tuple_update(table, place, slot, GetCurrentCommandId(true), GetActiveSnapshot(),
                               InvalidSnapshot, /* wait */ true, &failure, &lock_mode, &needs);
    if (result == TM_Ok && needs.any())
        add_entries_if(table, partial, {&slot, 1}, /* key_unchanged */ true,
                       [needs](Relation index) { return needs.in(index); });
    ExecDropSingleTupleTableSlot(slot);
    return result;
}

bool update(const RecordTable& in, const Record& record, const Version& expected) {
    OpenRow row = open_row(open_for_writing(in, CMD_UPDATE), in.primary_key, record.id);
    return change_row(row, record.id, expected, [&](Relation table, ItemPointer place) {
        return replace_version(table, in.partial, place, record);
    });
}

bool remove(const RecordTable& in, const Identity& id, const Version& expected) {
    OpenRow row = open_row(open_for_writing(in, CMD_DELETE), in.primary_key, id);
    return change_row(row, id, expected, [](Relation table, ItemPointer place) {
        TM_FailureData failure;
        return pg::table_tuple_delete(table, place, GetCurrentCommandId(true), GetActiveSnapshot(),
                                      InvalidSnapshot, /* wait */ true, &failure);
    });
}

}  // namespace

const Store heap_store = {
    find,
    reserve,
    insert,
    insert_all,
    update,
    remove,
    /* bypasses_executor */ true,
};

}  // namespace idem::store
