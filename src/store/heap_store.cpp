// Reads and writes the table of records through index scan, table access method and index insert:
// no executor, no SPI, no change of user, and so no code of users. What the executor would see to
// beside that (triggers, rules, partitions, checks) is what record_table.cpp looks for; where it
// finds any, SQL serves.

#include "pg/errors.hpp"
#include "store/columns.hpp"
#include "store/index_entries.hpp"
#include "store/record_table.hpp"
#include "store/row_look.hpp"
#include "store/row_versions.hpp"
#include "store/store.hpp"

namespace idem::store {

namespace {

// The table, its primary key and the row of a key, open together.
struct OpenRow {
    Relation table;  // nullptr: not a plain table any more
    Relation index;
    RowLook look;
    bool snapshot_pushed;
};

// Whether the transaction may write is asked at every call of the protocol, and not again here:
// what it was allowed when it was granted a key, it is allowed at commit. So is what a publication
// needs of a changed row, which its replica identity may lack: at commit, where no statement's
// snapshot is left, reserve() has asked.
Relation open_for_writing(CmdType command) {
    // A version that this very command has written could not be changed.
    CommandCounterIncrement();
    Relation table = open_plain_table(RowExclusiveLock);
    if (table != nullptr && ActiveSnapshotSet()) CheckCmdReplicaIdentity(table, command);
    return table;
}

// At commit no statement's snapshot is left, and toasted values need one.
bool push_snapshot() {
    if (ActiveSnapshotSet()) return false;
    PushActiveSnapshot(GetLatestSnapshot());
    return true;
}

OpenRow open_row(Relation table, const Identity& id) {
    OpenRow row{};
    row.table = table;
    if (table == nullptr) return row;
    row.index = index_open(record_table().primary_key, AccessShareLock);
    row.snapshot_pushed = push_snapshot();
    row.look = look_at_row(row.table, row.index, id, table_slot_create(row.table, nullptr));
    return row;
}

void look_again(OpenRow* row, const Identity& id) {
    ExecClearTuple(row->look.slot);
    row->look = look_at_row(row->table, row->index, id, row->look.slot);
}

void close_row(const OpenRow& row) {
    ExecDropSingleTupleTableSlot(row.look.slot);
    if (row.snapshot_pushed) PopActiveSnapshot();
    index_close(row.index, NoLock);
    table_close(row.table, NoLock);
}

bool is_version(TupleTableSlot* slot, const Version& expected) {
    bool is_null;
    Datum token = slot_getattr(slot, kToken + 1, &is_null);
    Datum status = slot_getattr(slot, kStatus + 1, &is_null);
    if (DatumGetInt64(token) != expected.token ||
        DatumGetChar(status) != static_cast<char>(expected.status))
        return false;
    Datum lease_until = slot_getattr(slot, kLeaseUntil + 1, &is_null);
    return expected.lease_until == pg::kNoTime ||
           (!is_null && DatumGetTimestampTz(lease_until) == expected.lease_until);
}

// A record as a slot that the table access method takes. The values point into the record.
TupleTableSlot* slot_of(const Record& record, Relation table) {
    TupleTableSlot* slot = MakeSingleTupleTableSlot(RelationGetDescr(table), &TTSOpsVirtual);
    to_columns(record, slot->tts_values, slot->tts_isnull);
    return ExecStoreVirtualTuple(slot);
}

// Only who ignores our lock can have got in; the row decides.
void rethrow_unless_taken(MemoryContext context) {
    MemoryContextSwitchTo(context);
    ErrorData* error = CopyErrorData();
    if (error->sqlerrcode != ERRCODE_UNIQUE_VIOLATION) PG_RE_THROW();
    FlushErrorState();
    pg::raise_claim_overtaken();
}

void insert_slot(Relation table, TupleTableSlot* slot) {
    MemoryContext context = CurrentMemoryContext;
    PG_TRY();
    {
        table_tuple_insert(table, slot, GetCurrentCommandId(true), 0, nullptr);
        add_index_entries(table, slot);
    }
    PG_CATCH();
    { rethrow_unless_taken(context); }
    PG_END_TRY();
}

Sight find(const Identity& id, Record* record) {
    OpenRow row = open_row(open_plain_table(AccessShareLock), id);
    if (row.table == nullptr) return sql_store.find(id, record);
    if (row.look.found) {
        slot_getallattrs(row.look.slot);
        from_columns(row.look.slot->tts_values, row.look.slot->tts_isnull, record);
        record->id.hash = id.hash;
    }
    close_row(row);
    return {row.look.found, row.look.writer};
}

// The indexes as well: at commit, nothing is to be waited for.
void reserve() {
    Relation table = open_plain_table(RowExclusiveLock);
    if (table == nullptr) return;
    CheckCmdReplicaIdentity(table, CMD_UPDATE);
    List* indexes = RelationGetIndexList(table);
    ListCell* cell;
    foreach (cell, indexes) LockRelationOid(lfirst_oid(cell), RowExclusiveLock);
    list_free(indexes);
    table_close(table, NoLock);
}

bool insert(const Record& record) {
    Relation table = open_for_writing(CMD_INSERT);
    if (table == nullptr) return sql_store.insert(record);
    bool snapshot_pushed = push_snapshot();
    TupleTableSlot* slot = slot_of(record, table);
    insert_slot(table, slot);
    ExecDropSingleTupleTableSlot(slot);
    if (snapshot_pushed) PopActiveSnapshot();
    table_close(table, NoLock);
    CommandCounterIncrement();
    return true;
}

// Does something to the row, and does it again for the version that follows if somebody who ignores
// our lock changes the row at the same moment. Whoever is changing it is waited for. False if the
// row is gone or is not the expected one any more.
template <typename Change>
bool change_row(const OpenRow& opened, const Identity& id, const Version& expected, Change change) {
    OpenRow row = opened;
    bool changed = false;
    while (row.look.found && is_version(row.look.slot, expected)) {
        changed = change(row.table, &row.look.slot->tts_tid) == TM_Ok;
        if (changed) break;
        look_again(&row, id);
    }
    close_row(row);
    // What comes next in the same statement sees it.
    CommandCounterIncrement();
    return changed;
}

TM_Result replace_version(Relation table, ItemPointer place, const Record& record) {
    TupleTableSlot* slot = slot_of(record, table);
    TM_FailureData failure;
    LockTupleMode lock_mode;
    pg::NeedsEntries needs;
    TM_Result result =
        table_tuple_update(table, place, slot, GetCurrentCommandId(true), GetActiveSnapshot(),
                           InvalidSnapshot, /* wait */ true, &failure, &lock_mode, &needs.which);
    if (result == TM_Ok) update_index_entries(table, slot, needs);
    ExecDropSingleTupleTableSlot(slot);
    return result;
}

bool update(const Record& record, const Version& expected) {
    OpenRow row = open_row(open_for_writing(CMD_UPDATE), record.id);
    if (row.table == nullptr) return sql_store.update(record, expected);
    return change_row(row, record.id, expected, [&record](Relation table, ItemPointer place) {
        return replace_version(table, place, record);
    });
}

bool remove(const Identity& id, const Version& expected) {
    OpenRow row = open_row(open_for_writing(CMD_DELETE), id);
    if (row.table == nullptr) return sql_store.remove(id, expected);
    return change_row(row, id, expected, [](Relation table, ItemPointer place) {
        TM_FailureData failure;
        return table_tuple_delete(table, place, GetCurrentCommandId(true), GetActiveSnapshot(),
                                  InvalidSnapshot, /* wait */ true, &failure,
                                  /* changingPart */ false);
    });
}

// Sweeping is not the hot path, and the planner's statement for it is bounded already.
Removed remove_expired(const Expired& which) {
    return sql_store.remove_expired(which);
}

}  // namespace

const Store heap_store = {
    find,
    versions_known_to,
    versions_busy,
    reserve,
    insert,
    update,
    remove,
    remove_expired,
    /* rows_guard_themselves */ true,
    /* writes_in_callbacks */ true,
};

}  // namespace idem::store
