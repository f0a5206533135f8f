#include "store/row_look.hpp"

#include "store/record_table.hpp"

namespace idem::store {

namespace {

// What one walk over the versions of the row has met.
struct Walk {
    RowLook look;
    List* others;  // transactions and subtransactions whose end would change what was seen
};

// Lists of transaction ids came with 16, and these are as wide.
static_assert(sizeof(TransactionId) == sizeof(Oid));

void set_keys(Relation index, const Identity& id, ScanKey keys) {
    const text* values[kKeyColumns] = {id.key, id.scope, id.principal};
    for (int i = 0; i < kKeyColumns; i++)
        ScanKeyEntryInitialize(&keys[i], 0, static_cast<AttrNumber>(i + 1), BTEqualStrategyNumber,
                               InvalidOid, index->rd_indcollation[i], F_TEXTEQ,
                               PointerGetDatum(values[i]));
}

// The snapshot tells who is inserting the version just met, or deleting it.
void note_others(const SnapshotData& snapshot, Walk* walk) {
    TransactionId other = TransactionIdIsValid(snapshot.xmin) ? snapshot.xmin : snapshot.xmax;
    if (TransactionIdIsValid(other)) walk->others = list_append_unique_oid(walk->others, other);
}

Walk walk_versions(IndexScanDesc scan, const SnapshotData& snapshot, TupleTableSlot* version,
                   TupleTableSlot* found) {
    Walk walk{{found, false, InvalidTransactionId}, NIL};
    while (index_getnext_slot(scan, ForwardScanDirection, version)) {
        note_others(snapshot, &walk);
        if (TransactionIdIsValid(snapshot.xmin)) {
            walk.look.writer = snapshot.xmin;
            continue;
        }
        ExecCopySlot(found, version);
        walk.look.found = true;
    }
    return walk;
}

// If one of the others has ended meanwhile, some versions were seen as of before and some as of
// after. There may be several: one transaction writes the row under an id of its own in each
// savepoint.
bool is_consistent(const Walk& walk) {
    ListCell* cell;
    foreach (cell, walk.others)
        if (!TransactionIdIsInProgress(lfirst_oid(cell))) return false;
    return true;
}

}  // namespace

RowLook look_at_row(Relation table, Relation index, const Identity& id, TupleTableSlot* slot) {
    ScanKeyData keys[kKeyColumns];
    set_keys(index, id, keys);
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

}  // namespace idem::store
