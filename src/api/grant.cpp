// idem_grant and idem_revoke: the rights on the protocol functions, by plain GRANT and REVOKE of
// the caller, who therefore has to own the extension.

#include "api/arguments.hpp"
#include "pg/boundary.hpp"
#include "pg/errors.hpp"
#include "pg/internal.hpp"

namespace idem::api {

namespace {

// Of the functions that the install script has closed to PUBLIC.
constexpr const char* kProtocol = "p.prosrc !~ '^idem_(operator|owner)_'";
constexpr const char* kOperator = "p.prosrc ~ '^idem_operator_'";

// What they are called, with their schema and arguments. Regprocedure qualifies them, because only
// pg_catalog is on the search_path. That the install script has closed them the server remembers in
// pg_init_privs, whatever has been granted since.
const char* function_list(Oid self, const char* which) {
    const char* query = psprintf(
        "SELECT pg_catalog.string_agg(p.oid::pg_catalog.regprocedure::pg_catalog.text, ', '"
        " ORDER BY p.oid)"
        " FROM pg_catalog.pg_proc self JOIN pg_catalog.pg_proc p"
        " ON p.probin = self.probin AND p.pronamespace = self.pronamespace"
        " JOIN pg_catalog.pg_init_privs i"
        " ON i.objoid = p.oid AND i.classoid = 'pg_catalog.pg_proc'::pg_catalog.regclass"
        " WHERE self.oid = %u AND %s",
        self, which);
    if (SPI_execute(query, true, 0) != SPI_OK_SELECT || SPI_processed != 1)
        elog(ERROR, "idempotency: the functions could not be listed");
    return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
}

void execute(const char* command) {
    if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
        elog(ERROR, "idempotency: could not execute \"%s\"", command);
}

// Rights are granted as the caller, but with our search_path.
void change_rights(FunctionCallInfo fcinfo, const char* verb, const char* preposition,
                   const char* which) {
    if (PG_ARGISNULL(0)) pg::raise_null("role");
    const char* role = quote_identifier(GetUserNameFromId(PG_GETARG_OID(0), false));
    int guc_level = NewGUCNestLevel();
    pg::set_locally("search_path", "pg_catalog, pg_temp");
    if (SPI_connect() != SPI_OK_CONNECT) elog(ERROR, "idempotency: SPI_connect failed");
    const char* functions = function_list(fcinfo->flinfo->fn_oid, which);
    execute(psprintf("%s EXECUTE ON FUNCTION %s %s %s", verb, functions, preposition, role));
    (void)SPI_finish();
    AtEOXact_GUC(false, guc_level);
}

// idem_grant(role, operator)
Datum grant(FunctionCallInfo fcinfo) {
    change_rights(fcinfo, "GRANT", "TO", kProtocol);
    if (bool_or(fcinfo, 1, false)) change_rights(fcinfo, "GRANT", "TO", kOperator);
    PG_RETURN_VOID();
}

// idem_revoke(role)
Datum revoke(FunctionCallInfo fcinfo) {
    change_rights(fcinfo, "REVOKE", "FROM", kProtocol);
    change_rights(fcinfo, "REVOKE", "FROM", kOperator);
    PG_RETURN_VOID();
}

}  // namespace

}  // namespace idem::api

IDEM_FUNCTION(idem_owner_grant, idem::api::grant);
IDEM_FUNCTION(idem_owner_revoke, idem::api::revoke);
