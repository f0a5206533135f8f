// A walk over every version of a row, dead ones included, with SnapshotAny. The snapshot that is asked
// about holds back the horizon of pruning and vacuum (GlobalVisTestFor), so a version that it could
// not know has not been removed, and none is missed: a record that was made and forgotten after the
// snapshot has left a dead version. Exceptions are what PostgreSQL itself calls not MVCC-safe:
// TRUNCATE and an ALTER TABLE that rewrites the table.

#include "store/row_versions.hpp"

#include "store/record_table.hpp"

namespace idem::store {

namespace {

// A transaction of somebody else that the snapshot takes for running or to come, and that has
// committed. One's own are asked first, as HeapTupleSatisfiesMVCC does; an aborted one has left
// nothing; a running one is the caller's business, who looks for writers.
bool is_news(TransactionId xid, Snapshot snapshot) {
    return TransactionIdIsNormal(xid) && !TransactionIdIsCurrentTransactionId(xid) &&
           XidInMVCCSnapshot(xid, snapshot) && TransactionIdDidCommit(xid);
}

// Who has removed or replaced the version; a row lock is neither.
TransactionId remover_of(HeapTupleHeader header) {
    bool none = (header->t_infomask & HEAP_XMAX_INVALID) != 0 ||
                HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask);
    return none ? InvalidTransactionId : HeapTupleHeaderGetUpdateXid(header);
}

// The header as it is at one moment: others may be setting its bits.
HeapTupleHeaderData header_in(TupleTableSlot* slot) {
    auto* heap_slot = reinterpret_cast<BufferHeapTupleTableSlot*>(slot);
    LockBuffer(heap_slot->buffer, BUFFER_LOCK_SHARE);
    HeapTupleHeaderData header;
    memcpy(&header, heap_slot->base.tuple->t_data, sizeof(header));
    LockBuffer(heap_slot->buffer, BUFFER_LOCK_UNLOCK);
    return header;
}

bool is_known(TupleTableSlot* version, Snapshot snapshot) {
    HeapTupleHeaderData header = header_in(version);
    return !is_news(HeapTupleHeaderGetXmin(&header), snapshot) &&
           !is_news(remover_of(&header), snapshot);
}

// The part of the identity that a column holds; nullptr for any other column. By name: partitions
// and children may have their columns in another order.
const text* part_of(const Identity& id, Form_pg_attribute column) {
    if (column->atttypid != TEXTOID || column->attisdropped) return nullptr;
    const char* name = NameStr(column->attname);
    if (strcmp(name, "key") == 0) return id.key;
    if (strcmp(name, "scope") == 0) return id.scope;
    return strcmp(name, "principal") == 0 ? id.principal : nullptr;
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

bool known_by_index(Relation table, Relation index, Snapshot snapshot, const Identity& id) {
    ScanKeyData keys[kKeyColumns];
    int count = set_keys(table, index, id, keys);
    TupleTableSlot* version = table_slot_create(table, nullptr);
    IndexScanDesc scan = pg::index_beginscan(table, index, SnapshotAny, count);
    index_rescan(scan, keys, count, nullptr, 0);
    bool known = true;
    while (known && index_getnext_slot(scan, ForwardScanDirection, version)) {
        CHECK_FOR_INTERRUPTS();
        known = !is_of(id, version) || is_known(version, snapshot);
    }
    index_endscan(scan);
    ExecDropSingleTupleTableSlot(version);
    return known;
}

// A child without a primary key.
bool known_by_table(Relation table, Snapshot snapshot, const Identity& id) {
    TupleTableSlot* version = table_slot_create(table, nullptr);
    TableScanDesc scan = table_beginscan(table, SnapshotAny, 0, nullptr);
    bool known = true;
    while (known && table_scan_getnextslot(scan, ForwardScanDirection, version)) {
        CHECK_FOR_INTERRUPTS();
        known = !is_of(id, version) || is_known(version, snapshot);
    }
    table_endscan(scan);
    ExecDropSingleTupleTableSlot(version);
    return known;
}

bool known_in(Relation table, Snapshot snapshot, const Identity& id) {
    if (table->rd_rel->relam != HEAP_TABLE_AM_OID) return true;
    Oid primary_key = pg::primary_key_of(table);
    if (!OidIsValid(primary_key)) return known_by_table(table, snapshot, id);
    Relation index = index_open(primary_key, AccessShareLock);
    bool known = known_by_index(table, index, snapshot, id);
    index_close(index, NoLock);
    return known;
}

}  // namespace

bool versions_known_to(Snapshot snapshot, const Identity& id) {
    List* tables = find_all_inheritors(record_table().table, AccessShareLock, nullptr);
    bool known = true;
    ListCell* cell;
    foreach (cell, tables) {
        Relation table = table_open(lfirst_oid(cell), NoLock);
        known = known && known_in(table, snapshot, id);
        table_close(table, NoLock);
    }
    list_free(tables);
    return known;
}

}  // namespace idem::store
