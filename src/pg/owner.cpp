// What ri_PerformCheck (ri_triggers.c) does for foreign keys: a plan that is prepared once and
// kept, run as the owner of the table, with a snapshot of our choice; and one restriction more,
// that of REFRESH MATERIALIZED VIEW (SECURITY_RESTRICTED_OPERATION).
//
// The versions of library and objects are compared by a catalog scan, once per change of the table
// "record": ALTER EXTENSION touches no relation that a backend would be told of, so update scripts
// touch that table.

#include "pg/owner.hpp"

namespace idem::pg {

namespace {

[[noreturn]] void raise_not_installed() {
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                    errmsg("extension \"idempotency\" is not installed in this database"),
                    errhint("Run CREATE EXTENSION idempotency.")));
    pg_unreachable();
}

// Which of the two is older decides what has to be done about it.
[[noreturn]] void raise_version(const char* library, const char* installed) {
    bool objects_are_older = strverscmp(installed, library) < 0;
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("extension \"idempotency\" is half updated"),
                    errdetail("The library is of version %s, the objects in this database are of "
                              "version %s.",
                              library, installed),
                    objects_are_older
                        ? errhint("Run ALTER EXTENSION idempotency UPDATE.")
                        : errhint("Install the library of that version, and reconnect. If it is in "
                                  "shared_preload_libraries, restart the server.")));
    pg_unreachable();
}

bool checked;  // the versions were found to be equal
bool changed;  // since the last look
Oid table;     // whose changes make us look again

void note_change(Datum, Oid relation) {
    if (relation != InvalidOid && relation != table) return;
    checked = false;
    changed = true;
}

// The version that CREATE or ALTER EXTENSION has left in the catalog.
char* installed_version() {
    ScanKeyData key;
    ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
                CStringGetDatum("idempotency"));
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

Oid table_owner(const char* table) {
    check_version();
    HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table_oid(table)));
    if (!HeapTupleIsValid(tuple)) raise_not_installed();
    Oid owner = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relowner;
    ReleaseSysCache(tuple);
    return owner;
}

void prepare(Statement* statement) {
    SPIPlanPtr plan =
        SPI_prepare_cursor(statement->sql, statement->nargs, const_cast<Oid*>(statement->types),
                           CURSOR_OPT_GENERIC_PLAN);
    if (plan == nullptr)
        elog(ERROR, "idempotency: SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
    if (SPI_keepplan(plan) != 0) elog(ERROR, "idempotency: SPI_keepplan failed");
    statement->plan = plan;
}

std::uint64_t run(Statement* statement, Datum* values, const char* nulls, bool read_only) {
    if (statement->access == Access::ByIndex) set_locally("enable_seqscan", "off");
    if (statement->plan == nullptr) prepare(statement);
    int result = SPI_execute_snapshot(statement->plan, values, nulls, GetActiveSnapshot(),
                                      InvalidSnapshot, read_only, true, 0);
    if (result < 0)
        elog(ERROR, "idempotency: SPI_execute_snapshot failed: %s", SPI_result_code_string(result));
    return SPI_processed;
}

}  // namespace

// Invalidation messages are taken in with a lock, and a transaction that has its locks already
// would not hear of ALTER EXTENSION, so they are asked for. One that arrives while the catalog is
// read counts, too: `changed` is cleared before. An error leaves the versions unchecked, so that
// the next call looks again.
void check_version() {
    AcceptInvalidationMessages();
    if (checked) return;
    table = table_oid("record");
    changed = false;
    char* installed = installed_version();
    if (strcmp(installed, IDEM_VERSION) != 0) raise_version(IDEM_VERSION, installed);
    pfree(installed);
    checked = !changed;
}

void watch_version_changes() {
    CacheRegisterRelcacheCallback(note_change, 0);
}

Oid table_oid(const char* name) {
    Oid schema = get_namespace_oid("idempotency", true);
    Oid table = OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;
    if (!OidIsValid(table)) raise_not_installed();
    return table;
}

void lock_table(const char* table, LOCKMODE mode) {
    LockRelationOid(table_oid(table), mode);
}

void set_locally(const char* setting, const char* value) {
    (void)set_config_option(setting, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                            false);
}

AsOwner begin_as_owner(const char* table) {
    AsOwner scope;
    scope.caller_context = CurrentMemoryContext;
    // Who owns a table that others are changing is known after the wait for them.
    lock_table(table, AccessShareLock);
    Oid owner = table_owner(table);
    GetUserIdAndSecContext(&scope.user, &scope.security_context);
    SetUserIdAndSecContext(owner, scope.security_context | SECURITY_LOCAL_USERID_CHANGE |
                                      SECURITY_RESTRICTED_OPERATION | SECURITY_NOFORCE_RLS);
    scope.guc_level = NewGUCNestLevel();
    set_locally("search_path", "pg_catalog, pg_temp");
    if (SPI_connect() != SPI_OK_CONNECT) elog(ERROR, "idempotency: SPI_connect failed");
    // What the calling command itself has written is seen as well.
    CommandCounterIncrement();
    PushActiveSnapshot(GetLatestSnapshot());
    return scope;
}

void end_as_owner(const AsOwner& scope) {
    PopActiveSnapshot();
    if (SPI_finish() != SPI_OK_FINISH) elog(ERROR, "idempotency: SPI_finish failed");
    AtEOXact_GUC(false, scope.guc_level);
    SetUserIdAndSecContext(scope.user, scope.security_context);
    MemoryContextSwitchTo(scope.caller_context);
}

std::uint64_t run_read(Statement* statement, Datum* values, const char* nulls) {
    return run(statement, values, nulls, true);
}

std::uint64_t run_write(Statement* statement, Datum* values, const char* nulls) {
    return run(statement, values, nulls, false);
}

std::uint64_t write_alone(const char* table, Statement* statement, Datum* values,
                          const char* nulls) {
    AsOwner scope = begin_as_owner(table);
    std::uint64_t rows = run_write(statement, values, nulls);
    end_as_owner(scope);
    return rows;
}

}  // namespace idem::pg
