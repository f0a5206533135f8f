#include "store/index_entries.hpp"

namespace idem::store {

namespace {

// As the server does it for its catalogs: plain columns need no executor.
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

template <typename Wanted>
void add_entries_if(Relation table, TupleTableSlot* slot, bool key_unchanged, Wanted wanted) {
    List* indexes = RelationGetIndexList(table);
    ListCell* cell;
    foreach (cell, indexes) {
        Relation index = index_open(lfirst_oid(cell), RowExclusiveLock);
        if (wanted(index)) add_entry(table, index, slot, key_unchanged);
        index_close(index, NoLock);
    }
    list_free(indexes);
}

}  // namespace

void add_index_entries(Relation table, TupleTableSlot* slot) {
    add_entries_if(table, slot, false, [](Relation) { return true; });
}

void update_index_entries(Relation table, TupleTableSlot* slot, pg::NeedsEntries needs) {
    if (!needs.any()) return;
    add_entries_if(table, slot, true, [needs](Relation index) { return needs.in(index); });
}

}  // namespace idem::store
