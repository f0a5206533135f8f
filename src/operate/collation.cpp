// On a single server principals are compared byte by byte, so that no library update reorders keys.
// Citus requires one collation for the distribution columns of colocated tables, and compares them
// on every node. On workers, and on nodes that join later, CREATE EXTENSION makes the extension's
// tables, and not Citus. So the install script needs to know the collation. Database settings reach
// a node before extensions (SendNodeWideObjectsSyncCommands). One setting, which nothing else
// reads, carries the collation's name.

#include "operate/collation.hpp"

#include "pg/boundary.hpp"
#include "pg/citus.hpp"
#include "pg/installed.hpp"
#include "pg/statements.hpp"

namespace idem::operate {

namespace {

constexpr const char* kSetting = "idempotency_cluster.principal_collation";
constexpr const char* kName = "'pg_catalog.' || pg_catalog.quote_ident(c.collname)";

// The tables distributed by principal, with their views.
struct Table {
    const char* name;
    const char* view;
};
constexpr Table kTables[] = {{"idempotency.record", "idempotency.records"},
                             {"idempotency.attempt", "idempotency.attempts"}};

bool principals_have(const char* collation, const char* table) {
    return pg::holds(
        psprintf("(SELECT %s = %s FROM pg_catalog.pg_attribute a"
                 " JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation"
                 " WHERE a.attrelid = '%s'::pg_catalog.regclass"
                 " AND a.attname = 'principal')",
                 kName, quote_literal_cstr(collation), table));
}

// A column used by a view can't be altered. Meanwhile the view selects no rows, with the same
// columns, so that users' views on it stay.
void fit_table(const Table& table, const char* collation) {
    if (principals_have(collation, table.name)) return;
    const char* columns =
        pg::ask(psprintf("SELECT pg_catalog.string_agg(pg_catalog.format('NULL::%%s%%s AS %%I',"
                         " pg_catalog.format_type(a.atttypid, a.atttypmod), ' COLLATE ' || %s,"
                         " a.attname), ', ' ORDER BY a.attnum)"
                         " FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_collation c"
                         " ON c.oid = a.attcollation"
                         " WHERE a.attrelid = '%s'::pg_catalog.regclass"
                         " AND a.attnum > 0",
                         kName, table.view));
    const char* definition =
        pg::ask(psprintf("SELECT pg_catalog.pg_get_viewdef('%s')", table.view));
    int guc_level = NewGUCNestLevel();
    pg::keep_ddl_to_this_node();
    pg::execute(psprintf("CREATE OR REPLACE VIEW %s AS SELECT %s", table.view, columns));
    pg::execute(psprintf("ALTER TABLE %s ALTER COLUMN principal TYPE text COLLATE %s", table.name,
                         collation));
    pg::execute(psprintf("CREATE OR REPLACE VIEW %s AS %s", table.view, definition));
    AtEOXact_GUC(false, guc_level);
}

// Their tables may be older than the setting.
void fit_workers(const char* collation) {
    const char* command =
        psprintf("SELECT idempotency.fit_principals(%s)", quote_literal_cstr(collation));
    const char* error = pg::failure_on_workers(command);
    if (error != nullptr)
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("records cannot be distributed"),
                        errdetail("A node could not set the collation of principals: %s", error)));
}

const char* noted() {
    return pg::ask(
        psprintf("SELECT pg_catalog.substr(setting, %d)"
                 " FROM pg_catalog.pg_db_role_setting, pg_catalog.unnest(setconfig) setting"
                 " WHERE setrole = 0 AND setdatabase = %u AND setting LIKE '%s=%%'",
                 static_cast<int>(strlen(kSetting)) + 2, MyDatabaseId, kSetting));
}

void note(const char* collation) {
    const char* before = noted();
    const char* database = pg::ask("SELECT pg_catalog.quote_ident(pg_catalog.current_database())");
    bool is_default = strcmp(collation, kDefaultCollation) == 0;
    if (is_default ? before == nullptr : before != nullptr && strcmp(before, collation) == 0)
        return;
    pg::execute(is_default ? psprintf("ALTER ROLE ALL IN DATABASE %s RESET %s", database, kSetting)
                           : psprintf("ALTER ROLE ALL IN DATABASE %s SET %s = %s", database,
                                      kSetting, quote_literal_cstr(collation)));
}

// Any role that may set database settings may have written anything there.
const char* checked(const char* name) {
    const char* known = pg::ask(psprintf("SELECT pg_catalog.to_regcollation(%s)::pg_catalog.oid",
                                         quote_literal_cstr(name)));
    const char* collation = known == nullptr ? nullptr : name_everywhere(atooid(known));
    if (collation == nullptr)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("principals cannot have the collation %s", name)));
    return collation;
}

// idempotency.fit_principals(collation). Without an argument: the collation in the setting; if it
// is empty and Citus is installed, the database's. Also called by the install script.
Datum fit_principals(FunctionCallInfo fcinfo) {
    if (!pg::has_citus()) PG_RETURN_VOID();
    const char* wanted = PG_ARGISNULL(0) ? nullptr : text_to_cstring(PG_GETARG_TEXT_PP(0));
    pg::run([wanted] {
        if (pg::is_table_of_citus("idempotency.record")) return;
        const char* name = wanted != nullptr ? wanted : noted();
        const char* collation = name == nullptr ? kDefaultCollation : checked(name);
        for (const Table& table : kTables) fit_table(table, collation);
    });
    PG_RETURN_VOID();
}

}  // namespace

const char* name_everywhere(Oid collation) {
    return pg::ask(
        psprintf("SELECT %s FROM pg_catalog.pg_collation c WHERE c.oid = %u"
                 " AND c.collisdeterministic"
                 " AND c.collnamespace = 'pg_catalog'::pg_catalog.regnamespace",
                 kName, collation));
}

void take_on_collation(const char* collation) {
    fit_workers(collation);
    for (const Table& table : kTables) fit_table(table, collation);
    note(collation);
}

}  // namespace idem::operate

IDEM_FUNCTION(idem_owner_fit_principals, idem::operate::fit_principals);
