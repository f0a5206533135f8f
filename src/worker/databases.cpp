#include "worker/databases.hpp"

namespace idem::worker {

namespace {

bool is_swept(Form_pg_database form) {
    return form->datallowconn && !form->datistemplate && !database_is_invalid_form(form);
}

Database known_or_new(const Databases& known, Oid oid) {
    for (int i = 0; i < known.count; i++)
        if (known.items[i].oid == oid) return known.items[i];
    return {oid, 0, 0, DT_NOBEGIN, kNoLag, nullptr};
}

void add(Databases* list, const Database& database) {
    std::size_t size = sizeof(Database) * static_cast<std::size_t>(list->count + 1);
    list->items =
        static_cast<Database*>(list->items == nullptr ? MemoryContextAlloc(TopMemoryContext, size)
                                                      : repalloc(list->items, size));
    list->items[list->count++] = database;
}

Databases read_databases(const Databases& known) {
    Databases fresh{};
    (void)GetTransactionSnapshot();
    Relation relation = table_open(DatabaseRelationId, NoLock);
    TableScanDesc scan = table_beginscan_catalog(relation, 0, nullptr);
    while (HeapTuple tuple = heap_getnext(scan, ForwardScanDirection)) {
        auto* form = reinterpret_cast<Form_pg_database>(GETSTRUCT(tuple));
        if (is_swept(form)) add(&fresh, known_or_new(known, form->oid));
    }
    table_endscan(scan);
    table_close(relation, NoLock);
    return fresh;
}

}  // namespace

// The only catalog that can be read without being in a database, and in a transaction of its own.
// The launcher waits for nobody's lock on it, VACUUM FULL's for example.
void refresh_databases(Databases* databases) {
    StartTransactionCommand();
    if (ConditionalLockRelationOid(DatabaseRelationId, AccessShareLock)) {
        Databases fresh = read_databases(*databases);
        if (databases->items != nullptr) pfree(databases->items);
        *databases = fresh;
    }
    CommitTransactionCommand();
}

}  // namespace idem::worker
