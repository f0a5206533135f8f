// A walk over every version of a row, dead ones included. It shows what other transactions have
// done to the row and are doing. PostgreSQL asks this of one version at a time:
// HeapTupleSatisfiesMVCC whether a snapshot knows its inserter and its deleter,
// HeapTupleSatisfiesUpdate whether another transaction is changing it. A REPEATABLE READ
// transaction fails with 40001 if it writes a row with a newer version than its snapshot knows.
// This extends that to a row that it does not write, and to a removed row.
//
// SnapshotAny shows all versions: for a non-MVCC snapshot, repeated calls of heap_hot_search_buffer
// return each member of a HOT chain. The snapshot in question holds back the horizon of pruning and
// vacuum (GlobalVisTestFor). So versions that it does not know are still there: a record that was
// made and forgotten after the snapshot has left a dead version. The exceptions are those that
// PostgreSQL itself calls not MVCC-safe: TRUNCATE, an ALTER TABLE that rewrites the table, and
// old_snapshot_threshold (pg::may_be_pruned_under). A moved shard has left its dead versions on its
// old node: for a snapshot older than its arrival, the past is unknown.

#include "store/row_versions.hpp"

namespace idem::store {

namespace {

// Another transaction that has committed, and that the snapshot takes for running or future. Own
// transactions are excluded first, as HeapTupleSatisfiesMVCC does. An aborted one has left nothing.
// The caller looks for running writers itself. One that has written its commit record and still
// counts as running is taken as committed: its commit can't be undone.
bool is_news(TransactionId xid, Snapshot snapshot) {
    return TransactionIdIsNormal(xid) && !TransactionIdIsCurrentTransactionId(xid) &&
           XidInMVCCSnapshot(xid, snapshot) && TransactionIdDidCommit(xid);
}

// Another transaction that has committed at any time.
bool is_settled(TransactionId xid) {
    if (!TransactionIdIsNormal(xid)) return TransactionIdIsValid(xid);
    return !TransactionIdIsCurrentTransactionId(xid) && TransactionIdDidCommit(xid);
}

// As HeapTupleSatisfiesUpdate finds TM_BeingModified. A row lock counts: a writer waits for it.
bool is_busy(HeapTupleHeader header) {
    auto is_running = [](TransactionId xid) {
        return TransactionIdIsNormal(xid) && !TransactionIdIsCurrentTransactionId(xid) &&
               TransactionIdIsInProgress(xid);
    };
    if (is_running(HeapTupleHeaderGetXmin(header))) return true;
    if ((header->t_infomask & HEAP_XMAX_INVALID) != 0) return false;
    TransactionId xmax = HeapTupleHeaderGetRawXmax(header);
    if ((header->t_infomask & HEAP_XMAX_IS_MULTI) == 0) return is_running(xmax);
    return MultiXactIdIsRunning(xmax, HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask));
}

// The kind of versions that the search looks for, and its result.
enum class Wanted { News, Busy };
struct Search {
    const Identity* id;
    Wanted wanted;
    Snapshot snapshot;         // of News
    TimestampTz leased_until;  // of the claim that others have committed and not ended
};

// Columns are known by name: partitions and children may have them in another order.

// Null where there is no such column.
NullableDatum value_of(const ColumnType& wanted, TupleTableSlot* version) {
    TupleDesc desc = version->tts_tupleDescriptor;
    NullableDatum value{0, true};
    for (int i = 0; i < desc->natts; i++) {
        Form_pg_attribute column = TupleDescAttr(desc, i);
        if (column->attisdropped || column->atttypid != wanted.type) continue;
        if (strcmp(NameStr(column->attname), wanted.name) != 0) continue;
        value.value = slot_getattr(version, i + 1, &value.isnull);
    }
    return value;
}

// kNoTime: no claim in progress. An unknown attempt has no lease, and its token may end it until an
// operator decides.
TimestampTz lease_in(TupleTableSlot* version) {
    NullableDatum status = value_of(column_of(&Record::status), version);
    NullableDatum until = value_of(column_of(&Record::lease_until), version);
    auto is = [&](core::Status wanted) {
        return !status.isnull && DatumGetChar(status.value) == static_cast<char>(wanted);
    };
    if (is(core::Status::Unknown)) return DT_NOEND;
    bool leased = is(core::Status::InProgress) && !until.isnull;
    return leased ? DatumGetTimestampTz(until.value) : pg::kNoTime;
}

// The part of the identity that a column holds; nullptr for any other column.
const text* part_of(const Identity& id, Form_pg_attribute column) {
    if (column->atttypid != TEXTOID || column->attisdropped) return nullptr;
    for (auto part : kPrimaryKey)
        if (strcmp(NameStr(column->attname), column_of(part).name) == 0) return id.*part;
    return nullptr;
}

bool is_of(const Identity& id, TupleTableSlot* version) {
    TupleDesc desc = version->tts_tupleDescriptor;
    for (int i = 0; i < desc->natts; i++) {
        const text* part = part_of(id, TupleDescAttr(desc, i));
        if (part == nullptr) continue;
        bool is_null;
        Datum value = slot_getattr(version, i + 1, &is_null);
        if (is_null || pg::bytes_of(DatumGetTextPP(value)) != pg::bytes_of(part)) return false;
    }
    return true;
}

int set_keys(Relation table, Relation index, const Identity& id, ScanKey keys) {
    int count = 0;
    for (int i = 0; i < index->rd_index->indnkeyatts; i++) {
        AttrNumber column = index->rd_index->indkey.values[i];
        if (column <= 0) continue;
        const text* part = part_of(id, TupleDescAttr(RelationGetDescr(table), column - 1));
        if (part == nullptr || count == kKeyColumns) continue;
        ScanKeyEntryInitialize(&keys[count++], 0, static_cast<AttrNumber>(i + 1),
                               BTEqualStrategyNumber, InvalidOid, index->rd_indcollation[i],
                               F_TEXTEQ, PointerGetDatum(part));
    }
    return count;
}

// Whether the search ends at this version. Reads the header first: vacuum may have removed the
// toasted values of a version that is dead to every backend, and the search never wants such a
// version.
bool ends_at(TupleTableSlot* version, Search* search) {
    // A consistent copy: others may be setting its bits, and a pin does not prevent that.
    auto* slot = reinterpret_cast<BufferHeapTupleTableSlot*>(version);
    HeapTupleHeaderData header;
    LockBuffer(slot->buffer, BUFFER_LOCK_SHARE);
    memcpy(&header, slot->base.tuple->t_data, sizeof(header));
    LockBuffer(slot->buffer, BUFFER_LOCK_UNLOCK);
    if (search->wanted == Wanted::Busy) return is_busy(&header) && is_of(*search->id, version);
    TransactionId inserter = HeapTupleHeaderGetXmin(&header);
    // The transaction that removed or replaced the version; a row lock does neither.
    bool is_removed = (header.t_infomask & HEAP_XMAX_INVALID) == 0 &&
                      !HEAP_XMAX_IS_LOCKED_ONLY(header.t_infomask);
    TransactionId remover =
        is_removed ? HeapTupleHeaderGetUpdateXid(&header) : InvalidTransactionId;
    bool has_news = is_news(inserter, search->snapshot) || is_news(remover, search->snapshot);
    // The row as others see it, even if this transaction has changed or removed it.
    bool is_last_of_others = is_settled(inserter) && !is_settled(remover);
    if ((!has_news && !is_last_of_others) || !is_of(*search->id, version)) return false;
    if (!has_news) search->leased_until = Max(search->leased_until, lease_in(version));
    return has_news;
}

bool found_by_index(Relation table, Oid primary_key, Search* search) {
    Relation index = index_open(primary_key, AccessShareLock);
    ScanKeyData keys[kKeyColumns];
    int count = set_keys(table, index, *search->id, keys);
    TupleTableSlot* version = table_slot_create(table, nullptr);
    IndexScanDesc scan = pg::index_beginscan(table, index, SnapshotAny, count);
    index_rescan(scan, keys, count, nullptr, 0);
    bool found = false;
    while (!found && index_getnext_slot(scan, ForwardScanDirection, version)) {
        CHECK_FOR_INTERRUPTS();
        found = ends_at(version, search);
    }
    index_endscan(scan);
    ExecDropSingleTupleTableSlot(version);
    index_close(index, NoLock);
    return found;
}

// A child without a primary key.
bool found_by_table(Relation table, Search* search) {
    TupleTableSlot* version = table_slot_create(table, nullptr);
    TableScanDesc scan = pg::table_beginscan(table, SnapshotAny, 0, nullptr);
    bool found = false;
    while (!found && table_scan_getnextslot(scan, ForwardScanDirection, version)) {
        CHECK_FOR_INTERRUPTS();
        found = ends_at(version, search);
    }
    table_endscan(scan);
    ExecDropSingleTupleTableSlot(version);
    return found;
}

// Whether the search ends at some version. `unknown` is the result for a table without versions to
// read, except a partitioned one: its rows are in its partitions.
bool any_version(const RecordTable& top, Search* search, bool unknown) {
    List* tables = find_all_inheritors(top.table, AccessShareLock, nullptr);
    bool found = false;
    ListCell* cell;
    foreach (cell, tables) {
        Relation table = table_open(lfirst_oid(cell), NoLock);
        if (!found && table->rd_rel->relkind != RELKIND_PARTITIONED_TABLE) {
            Oid primary_key = pg::primary_key_of(table);
            if (table->rd_rel->relam != HEAP_TABLE_AM_OID)
                found = unknown;
            else if (OidIsValid(primary_key))
                found = found_by_index(table, primary_key, search);
            else
                found = found_by_table(table, search);
        }
        table_close(table, NoLock);
    }
    list_free(tables);
    return found;
}

}  // namespace

Past past_of_versions(const RecordTable& table, Snapshot snapshot, const Identity& id) {
    Search search{&id, Wanted::News, snapshot, pg::kNoTime};
    bool known =
        !is_news(table.came_with, snapshot) && !any_version(table, &search, /* unknown */ false);
    return {known, search.leased_until};
}

bool versions_busy(const RecordTable& table, const Identity& id) {
    Search search{&id, Wanted::Busy, nullptr, pg::kNoTime};
    return any_version(table, &search, /* unknown */ true);
}

}  // namespace idem::store
