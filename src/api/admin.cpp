// Functions for operators: what becomes of single records, who may call what, what was counted.

#include "core/outcome.hpp"

#include "api/arguments.hpp"
#include "api/forward.hpp"
#include "claim/operator.hpp"
#include "pg/boundary.hpp"
#include "pg/owner.hpp"
#include "stats/counters.hpp"
#include "store/sweep.hpp"

namespace idem::api {

namespace {

[[noreturn]] void raise_action(const text* word) {
    StringInfoData known;
    initStringInfo(&known);
    for (const core::ResolutionEntry& entry : core::kResolutions) append_word(&known, entry.word);
    raise_word("action", text_to_cstring(word), known.data);
}

core::Resolution resolution_of(const text* word) {
    for (const core::ResolutionEntry& entry : core::kResolutions)
        if (entry.word == pg::bytes_of(word)) return entry.resolution;
    raise_action(word);
}

[[noreturn]] void raise_unused(const char* what, const char* detail) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid %s", what),
                    errdetail("%s", detail), errhint("Leave it out.")));
    pg_unreachable();
}

// What does not go with the decision is refused: whoever gave it believes that it is kept.
void check_fits(core::Resolution resolution, const claim::Response& response, const text* error) {
    if (resolution == core::Resolution::Complete && error != nullptr)
        raise_unused("error", "A completed record has none.");
    if (resolution != core::Resolution::Release) return;
    constexpr const char* kDetail = "A record that is released has no answer.";
    if (response.status_code) raise_unused("status_code", kDetail);
    if (response.body != nullptr) raise_unused("body", kDetail);
    if (response.headers != nullptr) raise_unused("headers", kDetail);
}

// idem_resolve(key, action, scope, principal, status_code, body, headers, error)
Datum resolve(FunctionCallInfo fcinfo) {
    claim::ClaimRef ref{"idem_resolve()", identity(fcinfo, 0, 2, 3), std::nullopt};
    core::Resolution resolution = resolution_of(required_text(fcinfo, 1, "action"));
    claim::Response response{status_code_or_none(fcinfo, 4), text_or_null(fcinfo, 5),
                             headers_or_null(fcinfo, 6)};
    text* error = text_or_null(fcinfo, 7);
    check_fits(resolution, response, error);
    claim::resolve(ref, resolution, response, error);
    PG_RETURN_BOOL(true);
}

// idem_forget(key, scope, principal)
Datum forget(FunctionCallInfo fcinfo) {
    claim::ClaimRef ref{"idem_forget()", identity(fcinfo, 0, 1, 2), std::nullopt};
    PG_RETURN_BOOL(claim::forget(ref));
}

// idem_cleanup(max_rows)
Datum cleanup(FunctionCallInfo fcinfo) {
    std::int64_t max_rows = bigint_or_none(fcinfo, 0).value_or(INT64_MAX);
    if (max_rows < 1) raise_number("max_rows", max_rows, 1, INT64_MAX);
    pg::require_writable("idem_cleanup()");
    store::Sweep which{DT_NOBEGIN, GetCurrentTimestamp(), max_rows, stats::count_swept};
    PG_RETURN_INT64(store::sweep(which).rows);
}

// claim_lives(lease_until, backend_pid, backend_start), of a record in progress
Datum claim_lives(FunctionCallInfo fcinfo) {
    store::Record record{};
    record.status = core::Status::InProgress;
    record.lease_until = PG_ARGISNULL(0) ? pg::kNoTime : PG_GETARG_TIMESTAMPTZ(0);
    record.backend_pid = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1);
    record.backend_start = PG_ARGISNULL(2) ? pg::kNoTime : PG_GETARG_TIMESTAMPTZ(2);
    PG_RETURN_BOOL(claim::claim_lives(record));
}

// ---- rights: plain GRANT and REVOKE of the caller, who therefore has to own the extension ----

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
    if (PG_ARGISNULL(0)) raise_null("role");
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
Datum grant_rights(FunctionCallInfo fcinfo) {
    change_rights(fcinfo, "GRANT", "TO", kProtocol);
    if (bool_or(fcinfo, 1, false)) change_rights(fcinfo, "GRANT", "TO", kOperator);
    PG_RETURN_VOID();
}

// idem_revoke(role)
Datum revoke_rights(FunctionCallInfo fcinfo) {
    change_rights(fcinfo, "REVOKE", "FROM", kProtocol);
    change_rights(fcinfo, "REVOKE", "FROM", kOperator);
    PG_RETURN_VOID();
}

// ---- statistics ----

// scope, one column per counter, since.
constexpr int kStatsColumns = stats::kCounterCount + 2;

void require_statistics() {
    if (!stats::available())
        ereport(ERROR,
                (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                 errmsg("statistics need shared memory"),
                 errdetail("The library was not loaded when the server started."),
                 errhint("Add idempotency to shared_preload_libraries and restart the server. "
                         "Everything else works without.")));
}

void put_row(ReturnSetInfo* result, const stats::ScopeCounts& row) {
    Datum values[kStatsColumns];
    bool nulls[kStatsColumns] = {};
    values[0] = PointerGetDatum(row.scope);
    nulls[0] = row.scope == nullptr;
    for (int i = 0; i < stats::kCounterCount; i++)
        values[i + 1] = Int64GetDatum(static_cast<std::int64_t>(row.counts[i]));
    values[kStatsColumns - 1] = TimestampTzGetDatum(row.since);
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

// idempotency.scope_stats(): waited time in microseconds; the view divides it.
Datum scope_stats(FunctionCallInfo fcinfo) {
    require_statistics();
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    stats::ScopeCounts* rows;
    int count = stats::read_all(&rows);
    for (int i = 0; i < count; i++) put_row(result, rows[i]);
    return 0;
}

// idem_stats_reset()
Datum stats_reset(FunctionCallInfo) {
    require_statistics();
    stats::reset();
    PG_RETURN_VOID();
}

}  // namespace

}  // namespace idem::api

IDEM_FUNCTION(idem_operator_resolve, idem::api::at_its_records<idem::api::resolve>);
IDEM_FUNCTION(idem_operator_forget, idem::api::at_its_records<idem::api::forget>);
IDEM_FUNCTION(idem_operator_cleanup, idem::api::cleanup);
IDEM_FUNCTION(idem_claim_lives, idem::api::claim_lives);
IDEM_FUNCTION(idem_owner_grant, idem::api::grant_rights);
IDEM_FUNCTION(idem_owner_revoke, idem::api::revoke_rights);
IDEM_FUNCTION(idem_scope_stats, idem::api::scope_stats);
IDEM_FUNCTION(idem_operator_stats_reset, idem::api::stats_reset);
