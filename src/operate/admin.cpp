// Functions for operators: they decide single records, and reset and show the statistics.

#include "core/outcome.hpp"

#include "api/arguments.hpp"
#include "api/forward.hpp"
#include "claim/abandon.hpp"
#include "claim/operator.hpp"
#include "claim/state.hpp"
#include "operate/nodes.hpp"
#include "operate/resolution.hpp"
#include "pg/boundary.hpp"
#include "stats/counters.hpp"
#include "store/attempt.hpp"
#include "store/audit.hpp"
#include "store/sweep.hpp"

namespace idem::operate {

using namespace api;

namespace {

// idem_resolve(key, action, scope, principal, status_code, body, headers, error, reason,
//              even_if_running)
Datum resolve(FunctionCallInfo fcinfo) {
    claim::ClaimRef ref{"idem_resolve()", identity(fcinfo, 0, 2, 3), std::nullopt};
    claim::Resolution resolution = resolution_of(fcinfo, 1, 4, 8);
    resolution.even_if_running = bool_or(fcinfo, 9, false);
    if (resolution.even_if_running && resolution.action != core::Resolution::Release)
        raise_unused("even_if_running", "Only a release can meet a holder that is still running.");
    claim::resolve(ref, resolution);
    PG_RETURN_BOOL(true);
}

// idem_forget(key, scope, principal, reason)
Datum forget(FunctionCallInfo fcinfo) {
    claim::ClaimRef ref{"idem_forget()", identity(fcinfo, 0, 1, 2), std::nullopt};
    PG_RETURN_BOOL(claim::forget(ref, reason_or_null(fcinfo, 3)));
}

// The schema of a function of ours, for a call on another node.
char* call_there(FunctionCallInfo fcinfo, const char* arguments) {
    Oid function = fcinfo->flinfo->fn_oid;
    return psprintf("SELECT %s(%s)",
                    quote_qualified_identifier(get_namespace_name(get_func_namespace(function)),
                                               get_func_name(function)),
                    arguments);
}

// The number of rows that a cleanup on all nodes may still remove.
struct CleanupEverywhere {
    FunctionCallInfo call;
    std::int64_t max_rows;
};

char* cleanup_statement(std::int64_t before, void* argument) {
    auto* everywhere = static_cast<CleanupEverywhere*>(argument);
    if (before >= everywhere->max_rows) return pstrdup("SELECT 0");
    // With the argument's type, so that no function of a user matches better.
    return call_there(everywhere->call,
                      psprintf(INT64_FORMAT "::pg_catalog.int8", everywhere->max_rows - before));
}

// idem_cleanup(max_rows)
Datum cleanup(FunctionCallInfo fcinfo) {
    std::int64_t max_rows = bigint_or_none(fcinfo, 0).value_or(INT64_MAX);
    if (max_rows < 1) raise_number("max_rows", max_rows, 1, INT64_MAX);
    pg::require_writable("idem_cleanup()");
    CleanupEverywhere everywhere{fcinfo, max_rows};
    if (asks_other_nodes()) PG_RETURN_INT64(sum_of_nodes(cleanup_statement, &everywhere));
    constexpr int kMostLinked = 10000;
    store::Sweep which{DT_NOBEGIN, GetCurrentTimestamp(), max_rows, stats::count_swept};
    std::int64_t rows = store::sweep(which).rows;
    rows += store::sweep_attempts(max_rows - rows);
    (void)store::link_decisions(kMostLinked);
    if (rows < max_rows) rows += store::sweep_audit(max_rows - rows);
    // The locks of abandoned keys may be kept until the transaction ends, and the lock table is
    // limited.
    constexpr int kMostAbandoned = 1000;
    auto left = static_cast<int>(Min(max_rows, kMostAbandoned));
    store::WalkPosition from{};
    for (bool at_end = false; left > 0 && !at_end;) {
        claim::Abandoned done = claim::abandon(&from, left);
        left -= static_cast<int>(done.claims);
        at_end = done.at_end;
    }
    PG_RETURN_INT64(rows);
}

// claim_lives(lease_until, backend_pid, backend_start), for a record in progress
Datum claim_lives(FunctionCallInfo fcinfo) {
    store::Record record{};
    record.status = core::Status::InProgress;
    record.lease_until = PG_ARGISNULL(0) ? pg::kNoTime : PG_GETARG_TIMESTAMPTZ(0);
    record.backend_pid = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1);
    record.backend_start = PG_ARGISNULL(2) ? pg::kNoTime : PG_GETARG_TIMESTAMPTZ(2);
    PG_RETURN_BOOL(claim::claim_lives(record));
}

// ---- statistics ----

// scope, one column per counter, since
constexpr int kStatsColumns = stats::kCounterCount + 2;

void require_statistics() {
    if (!stats::available())
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("statistics need shared memory"),
                        errdetail("The library was not loaded when the server started."),
                        errhint("Add idempotency to shared_preload_libraries and restart the "
                                "server. Only statistics need this.")));
}

// idempotency.scope_stats(): waited time is in microseconds; the view converts it.
Datum scope_stats(FunctionCallInfo fcinfo) {
    require_statistics();
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    stats::ScopeCounts* rows;
    int count = stats::read_all(&rows);
    for (int i = 0; i < count; i++) {
        const stats::ScopeCounts& row = rows[i];
        Datum values[kStatsColumns];
        bool nulls[kStatsColumns] = {};
        values[0] = PointerGetDatum(row.scope);
        nulls[0] = row.scope == nullptr;
        for (int k = 0; k < stats::kCounterCount; k++)
            values[k + 1] = Int64GetDatum(static_cast<std::int64_t>(row.counts[k]));
        values[kStatsColumns - 1] = TimestampTzGetDatum(row.since);
        tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    }
    return 0;
}

// idem_stats_reset()
Datum stats_reset(FunctionCallInfo fcinfo) {
    require_statistics();
    auto statement = [](std::int64_t, void* call) {
        const char* there = call_there(static_cast<FunctionCallInfo>(call), "");
        return psprintf("SELECT 0 FROM (%s) reset", there);
    };
    if (asks_other_nodes())
        (void)sum_of_nodes(statement, fcinfo);
    else
        stats::reset();
    PG_RETURN_VOID();
}

}  // namespace

}  // namespace idem::operate

IDEM_FUNCTION(idem_operator_resolve, idem::operate::at_its_records<idem::operate::resolve>);
IDEM_FUNCTION(idem_operator_forget, idem::operate::at_its_records<idem::operate::forget>);
IDEM_FUNCTION(idem_administrator_cleanup, idem::operate::cleanup);
IDEM_FUNCTION(idem_claim_lives, idem::operate::claim_lives);
IDEM_FUNCTION(idem_scope_stats, idem::operate::scope_stats);
IDEM_FUNCTION(idem_administrator_stats_reset, idem::operate::stats_reset);
