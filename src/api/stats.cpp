// idempotency.stats and idem_stats_reset.

#include "pg/boundary.hpp"
#include "pg/datum.hpp"
#include "pg/errors.hpp"
#include "stats/counters.hpp"

namespace idem::api {

namespace {

// scope, one column per counter, since.
constexpr int kColumns = stats::kCounters + 2;

void require_statistics() {
    if (!stats::available()) pg::raise_no_statistics();
}

void put_row(ReturnSetInfo* result, const stats::ScopeCounts& row) {
    Datum values[kColumns];
    bool nulls[kColumns] = {};
    values[0] = PointerGetDatum(row.scope);
    nulls[0] = row.scope == nullptr;
    for (int i = 0; i < stats::kCounters; i++)
        values[i + 1] = Int64GetDatum(static_cast<std::int64_t>(row.counts[i]));
    values[kColumns - 1] = TimestampTzGetDatum(row.since);
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

IDEM_FUNCTION(idem_scope_stats, idem::api::scope_stats);
IDEM_FUNCTION(idem_operator_stats_reset, idem::api::stats_reset);
