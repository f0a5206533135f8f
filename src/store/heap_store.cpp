// Reads and writes the table of records through index scan, table access method and index insert:
// no executor, no SPI, no change of user, and so no code of users. obstacle.cpp looks for all else
// that the executor would do (triggers, rules, partitions, generated columns, check constraints).
// If it finds any, the SQL store serves. No code here knows which table it is.
//
// PostgreSQL does the same in two places. Its catalogs are written by CatalogTupleInsert and
// CatalogTupleUpdate, with index entries by CatalogIndexInsert. Logical replication finds a row
// with RelationFindReplTupleByIndex and changes it with ExecSimpleRelationUpdate. Those end in
// simple_heap_update and simple_table_tuple_update, which fail with "tuple concurrently updated"; a
// change here looks at the version that follows, and decides again.
//
// What holds all the time:
// - A key has one row: the primary key's entry is inserted with UNIQUE_CHECK_YES, which waits for
//   whoever is inserting the same key.
// - The table is locked by whoever has picked this store for it (store.cpp), for a look with
//   AccessShareLock and for all else with RowExclusiveLock, and was plain when the lock was
//   granted.
// - A row is replaced or removed only if it is the version that the caller has seen.
// - A look is judged by no snapshot (one is active for detoasting), and takes no predicate lock and
//   no transaction id.
// - Each write is a command of its own: what comes next in the same statement sees it, and it can
//   change what the same statement has written.

#include "store/implementation.hpp"
#include "store/obstacle.hpp"

namespace idem::store {

namespace {

// ---- a look at the row of a key ----
//
// Past all snapshots, with a dirty one, as RelationFindReplTupleByIndex and
// check_exclusion_or_unique_constraint look: an index scan meets the newest committed version, our
// own, and what other transactions have written and not yet committed. Those two wait for the
// others; here it is only told who they are. For a snapshot that is not an MVCC one the scan keeps
// the leaf page pinned while it visits the table, so VACUUM gives no line pointer that it has read
// of to another row.

// What one walk over the versions of the row has met.
struct Walk {
    Look look;
    List* others;  // transactions and subtransactions whose end would change what was seen
};

// Lists of transaction ids came with 16, and these are as wide.
static_assert(sizeof(TransactionId) == sizeof(Oid));

// HeapTupleSatisfiesDirty leaves in the snapshot which transaction is inserting the version just
// met, or else which one is replacing or removing it; a transaction that has only locked it is not
// told. Each of them is a writer: a row that is being removed is still found, and nothing may go on
// with it before that is decided.
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
// transaction is running, passes over it, and meets the old one when it has committed, as one that
// is dead: a row that was there all the time would be missed. So if one of the others has ended
// meanwhile, some versions were seen as of before and some as of after. There may be several: one
// transaction writes the row under an id of its own in each savepoint.
//
// Not noticed is a transaction that begins to write after the scan has passed the place of the new
// version and commits before it comes to the old one: see find in store.hpp.
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
// CatalogIndexInsert does it like this: where no index has an expression, or a predicate but the
// one that is known here, no unique one is deferrable and none is an exclusion constraint, which
// is_plain() in obstacle.cpp sees to, the entries need no EState. Two things are as in
// ExecInsertIndexTuples: an update tells the primary key that the key is unchanged, which lets a
// B-tree delete entries of dead versions before it splits a page; and an index that only summarizes
// hears of HOT updates.

core::Status status_in(TupleTableSlot* slot) {
    bool is_null;
    Datum status = slot_getattr(slot, attribute_of(&Record::status), &is_null);
    return static_cast<core::Status>(DatumGetChar(status));
}

void add_entry(Relation table, Relation index, TupleTableSlot* slot, bool key_unchanged) {
    IndexInfo* info = BuildIndexInfo(index);
    if (info->ii_ReadyForInserts) {
        bool unique = index->rd_index->indisunique;
        Datum values[INDEX_MAX_KEYS];
        bool nulls[INDEX_MAX_KEYS];
        FormIndexDatum(info, slot, nullptr, values, nulls);
        (void)index_insert(index, values, nulls, &slot->tts_tid, table,
                           unique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, unique && key_unchanged,
                           info);
        pg::index_insert_cleanup(index, info);
    }
    pfree(info);
}

// Of a row in `slot`, which knows its place, in the indexes that are wanted. An error (23505) if
// the row is new and its key is there already.
//
// Most rows are written with their answer, so the index of outstanding ones is not opened for
// them. It may be another one than is known, built or replaced CONCURRENTLY since, or there may be
// several: so each index that is opened is asked.
template <typename Wanted>
void add_entries_if(Relation table, Oid index_of_claims, TupleTableSlot* slot, bool key_unchanged,
                    Wanted wanted) {
    bool outstanding = core::is_outstanding(status_in(slot));
    List* indexes = RelationGetIndexList(table);
    ListCell* cell;
    foreach (cell, indexes) {
        if (!outstanding && lfirst_oid(cell) == index_of_claims) continue;
        Relation index = index_open(lfirst_oid(cell), RowExclusiveLock);
        if (wanted(index) && (outstanding || !has_claims_alone(index)))
            add_entry(table, index, slot, key_unchanged);
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

// Whether the transaction may write is asked at every call of the protocol, and not again here:
// what it was allowed when it was granted a key, it is allowed at commit. So is what a publication
// needs of a changed row, which its replica identity may lack: at commit, where no statement's
// snapshot is left, reserve() has asked.
Relation open_for_writing(const RecordTable& in, CmdType command) {
    // A version that this very command has written could not be changed.
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

// A record as a slot that the table access method takes. The values point into the record. Columns
// behind ours have been dropped.
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

// The indexes as well: at commit, nothing is to be waited for.
void reserve(const RecordTable& in) {
    Relation table = table_open(in.table, NoLock);
    CheckCmdReplicaIdentity(table, CMD_UPDATE);
    List* indexes = RelationGetIndexList(table);
    ListCell* cell;
    foreach (cell, indexes) LockRelationOid(lfirst_oid(cell), RowExclusiveLock);
    list_free(indexes);
    table_close(table, NoLock);
}

bool insert(const RecordTable& in, const Record& record) {
    Relation table = open_for_writing(in, CMD_INSERT);
    bool snapshot_pushed = push_snapshot();
    TupleTableSlot* slot = slot_of(record, table);
    MemoryContext context = CurrentMemoryContext;
    PG_TRY();
    {
        table_tuple_insert(table, slot, GetCurrentCommandId(true), 0, nullptr);
        add_entries_if(table, in.index_of_claims, slot, /* key_unchanged */ false,
                       [](Relation) { return true; });
    }
    PG_CATCH();
    {
        // The row decides: only a writer that bypasses our lock causes this. The tuple stands in
        // the table already, so the transaction has to end.
        MemoryContextSwitchTo(context);
        ErrorData* error = CopyErrorData();
        if (error->sqlerrcode != ERRCODE_UNIQUE_VIOLATION) PG_RE_THROW();
        FlushErrorState();
        raise_claim_overtaken();
    }
    PG_END_TRY();
    ExecDropSingleTupleTableSlot(slot);
    if (snapshot_pushed) PopActiveSnapshot();
    table_close(table, NoLock);
    CommandCounterIncrement();
    return true;
}

// Changes the row, and changes the version that follows if a writer that bypasses our lock changes
// the row at the same moment. The change waits for such a writer. False if the row is gone or is no
// longer the expected one.
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
    // What comes next in the same statement sees it.
    CommandCounterIncrement();
    return changed;
}

TM_Result replace_version(Relation table, Oid index_of_claims, ItemPointer place,
                          const Record& record) {
    TupleTableSlot* slot = slot_of(record, table);
    TM_FailureData failure;
    LockTupleMode lock_mode;
    pg::NeedsEntries needs;
    TM_Result result =
        pg::table_tuple_update(table, place, slot, GetCurrentCommandId(true), GetActiveSnapshot(),
                               InvalidSnapshot, /* wait */ true, &failure, &lock_mode, &needs);
    if (result == TM_Ok && needs.any())
        add_entries_if(table, index_of_claims, slot, /* key_unchanged */ true,
                       [needs](Relation index) { return needs.in(index); });
    ExecDropSingleTupleTableSlot(slot);
    return result;
}

bool update(const RecordTable& in, const Record& record, const Version& expected) {
    OpenRow row = open_row(open_for_writing(in, CMD_UPDATE), in.primary_key, record.id);
    return change_row(row, record.id, expected, [&](Relation table, ItemPointer place) {
        return replace_version(table, in.index_of_claims, place, record);
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
    update,
    remove,
    /* bypasses_executor */ true,
};

}  // namespace idem::store
