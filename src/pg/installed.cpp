// Facts about a table are cached as the plan cache caches plans (PlanCacheRelCallback). A relcache
// callback only notes a change, because it may come at any moment and must not read anything. The
// next use looks again. All tables share one callback; the server has room for ten of all modules.
//
// The versions of library and objects are compared by a catalog scan, once per change of one table.
// ALTER EXTENSION invalidates no relation, so upgrade scripts touch that
// table.

#include "pg/installed.hpp"

namespace idem::pg {

namespace {

// ---- facts about a table ----

Watched* all_watched;

// InvalidOid: messages were lost, so everything may have changed.
bool concerns(const Watched& watched, Oid relation) {
    return relation == InvalidOid || relation == watched.oid ||
           (watched.is_part != nullptr && watched.is_part(relation));
}

void note_change(Datum, Oid relation) {
    for (Watched* each = all_watched; each != nullptr; each = each->next) {
        if (!concerns(*each, relation)) continue;
        each->is_current = false;
        each->changed = true;
    }
}

// A look that waits for another session's DDL is followed by a second one, which usually does not
// wait. If changes arrive as fast as looks, the last result is used once: it was true within this
// call, and the next call looks again.
constexpr int kLooks = 3;

// ---- the version ----

// The remedy depends on which of the two is older.
[[noreturn]] void raise_version(const char* library, const char* installed) {
    bool objects_are_older = strverscmp(installed, library) < 0;
    ereport(
        ERROR,
        (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
         errmsg("library and objects of extension \"idempotency\" have different versions"),
         errdetail("The library has version %s, and the objects in this database have version %s.",
                   library, installed),
         objects_are_older
             ? errhint("Run ALTER EXTENSION idempotency UPDATE.")
             : errhint("Install the library of that version, and reconnect. If it is in "
                       "shared_preload_libraries, restart the server.")));
    pg_unreachable();
}

// The version in the catalog, written by CREATE or ALTER EXTENSION.
char* installed_version() {
    ScanKeyData key;
    ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
                CStringGetDatum(kExtension));
    Relation catalog = table_open(ExtensionRelationId, AccessShareLock);
    SysScanDesc scan = systable_beginscan(catalog, ExtensionNameIndexId, true, nullptr, 1, &key);
    HeapTuple tuple = systable_getnext(scan);
    if (!HeapTupleIsValid(tuple)) raise_not_installed();
    bool null;
    Datum version =
        heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(catalog), &null);
    char* result = TextDatumGetCString(version);
    systable_endscan(scan);
    table_close(catalog, AccessShareLock);
    return result;
}

void compare_versions(Oid) {
    char* installed = installed_version();
    if (strcmp(installed, IDEM_VERSION) != 0) raise_version(IDEM_VERSION, installed);
    pfree(installed);
}

Watched same_version = {nullptr, compare_versions};

}  // namespace

void raise_not_installed() {
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                    errmsg("extension \"idempotency\" is not installed in this database"),
                    errhint("Run CREATE EXTENSION idempotency.")));
    pg_unreachable();
}

Oid own_function(Oid schema, const char* name) {
    Oid extension = get_extension_oid(kExtension, false);
    CatCList* alike = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum(name));
    Oid function = InvalidOid;
    for (int i = 0; i < alike->n_members && !OidIsValid(function); i++) {
        auto* form = reinterpret_cast<Form_pg_proc>(GETSTRUCT(&alike->members[i]->tuple));
        if (form->pronamespace == schema &&
            getExtensionOfObject(ProcedureRelationId, form->oid) == extension)
            function = form->oid;
    }
    ReleaseSysCacheList(alike);
    if (!OidIsValid(function)) elog(ERROR, "idempotency: there is no function \"%s\"", name);
    return function;
}

// The server does not lock a function while it runs.
void raise_dropped() {
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                    errmsg("an object of extension \"idempotency\" was dropped during this call"),
                    errhint("If the extension was created again, repeat the call.")));
    pg_unreachable();
}

void check_called(Oid function) {
    if (!SearchSysCacheExists1(PROCOID, ObjectIdGetDatum(function))) raise_dropped();
}

void check_row_type(TupleDesc row, int columns) {
    if (row->natts != columns)
        elog(ERROR, "idempotency: %s is not the type this library knows",
             format_type_be(row->tdtypeid));
}

TupleDesc row_of_called(Oid function, int columns) {
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(tuple)) raise_dropped();
    Oid type = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple))->prorettype;
    ReleaseSysCache(tuple);
    TupleDesc row = lookup_rowtype_tupdesc(type, -1);
    check_row_type(row, columns);
    return row;
}

Oid find_table(const char* name) {
    Oid schema = get_namespace_oid(kExtension, true);
    return OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;
}

Oid table_oid(const char* name) {
    Oid table = find_table(name);
    if (!OidIsValid(table)) raise_not_installed();
    return table;
}

// As RangeVarGetRelidExtended does: another session may have dropped the table during the wait.
Oid lock_table(const char* name, LOCKMODE mode) {
    for (;;) {
        Oid table = table_oid(name);
        LockRelationOid(table, mode);
        if (find_table(name) == table) return table;
        UnlockRelationOid(table, mode);
    }
}

void watch(Watched* watched) {
    if (all_watched == nullptr) CacheRegisterRelcacheCallback(note_change, 0);
    watched->next = all_watched;
    all_watched = watched;
}

// After an error it is not current, so the next use looks again.
void look_at(Watched* watched) {
    watched->is_current = false;
    watched->oid =
        watched->opens ? lock_table(watched->table, AccessShareLock) : table_oid(watched->table);
    watched->changed = false;
    watched->look(watched->oid);
    watched->is_current = !watched->changed;
    if (watched->opens) UnlockRelationOid(watched->oid, AccessShareLock);
}

// The server processes invalidation messages when it takes a lock. A transaction that already has
// its locks would miss them, so this processes them explicitly.
void refresh(Watched* watched) {
    AcceptInvalidationMessages();
    for (int looks = 0; looks < kLooks && !watched->is_current; looks++) look_at(watched);
}

void check_version() {
    refresh(&same_version);
}

void watch_version(const char* table) {
    same_version.table = table;
    watch(&same_version);
}

}  // namespace idem::pg
