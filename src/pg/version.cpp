#include "pg/version.hpp"

#include "pg/errors.hpp"
#include "pg/internal.hpp"
#include "pg/pg.hpp"

namespace idem::pg {

namespace {

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

}  // namespace

// A transaction that has its locks already would not hear of a change, so it is asked for. One that
// arrives while the catalog is read counts, too: `changed` is cleared before. An error leaves the
// versions unchecked, so that the next call looks again.
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

}  // namespace idem::pg
