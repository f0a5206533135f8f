#include "store/next_due.hpp"

#include "core/time.hpp"

#include "config/settings.hpp"
#include "pg/datum.hpp"
#include "pg/owner.hpp"
#include "store/attempt.hpp"
#include "store/audit.hpp"
#include "store/record.hpp"
#include "store/record_table.hpp"
#include "store/sweep.hpp"

namespace idem::store {

namespace {

// The time in the first row of the result.
TimestampTz first_moment(const char* ours, const char* sql) {
    pg::Statement statement = {sql, 0, nullptr, pg::Access::ByIndex, nullptr};
    pg::AsOwner frame = pg::begin_as_owner(ours);
    TimestampTz moment = DT_NOEND;
    if (pg::run_read(&statement, nullptr, nullptr) > 0)
        moment = DatumGetTimestampTz(pg::first_row().value(1));
    pg::drop_plan(&statement);
    pg::end_as_owner(frame);
    return moment;
}

// A shard may have been dropped since, here and below.
TimestampTz oldest_row(const char* ours, Oid table, const char* time) {
    if (!OidIsValid(get_rel_namespace(table))) return DT_NOEND;
    return first_moment(ours, psprintf("SELECT %1$s FROM %2$s ORDER BY %1$s LIMIT 1", time,
                                       pg::qualified_name(table)));
}

TimestampTz delayed(TimestampTz moment, int seconds) {
    return TIMESTAMP_NOT_FINITE(moment) ? moment : pg::after(moment, seconds * core::kSecond);
}

}  // namespace

TimestampTz next_expired_record() {
    int count;
    const RecordTable* tables = local_tables(&count);
    TimestampTz next = DT_NOEND;
    // Claims in progress and unknown records do not expire by age, but are in the same index. At
    // most this many are skipped: rows behind them are due no sooner than they would be.
    constexpr int kMostPassedOver = 1000;
    for (int i = 0; i < count; i++) {
        if (!OidIsValid(get_rel_namespace(tables[i].table))) continue;
        const char* sql =
            psprintf(R"(
            SELECT retained_until
            FROM (SELECT retained_until, status,
                        row_number() OVER (ORDER BY retained_until) AS number
                    FROM %s) AS walked
            WHERE %s OR number = %d
            ORDER BY retained_until LIMIT 1)",
                     pg::qualified_name(tables[i].table), kGoesByAge, kMostPassedOver);
        TimestampTz oldest = first_moment(kRecordTable, sql);
        next = Min(next, oldest);
    }
    return delayed(next, config::cleanup_grace);
}

TimestampTz next_expired_attempt() {
    int count;
    const Oid* tables = local_attempt_tables(&count);
    TimestampTz next = DT_NOEND;
    for (int i = 0; i < count; i++) {
        TimestampTz oldest = oldest_row(kAttemptTable, tables[i], "retained_until");
        next = Min(next, oldest);
    }
    return next;
}

TimestampTz next_audit() {
    // Rows to link, or a link to log.
    const char* sql = psprintf(
        "SELECT '-infinity'::timestamptz WHERE EXISTS (SELECT FROM idempotency.audit WHERE number"
        " IS NULL) OR (%s AND EXISTS (SELECT FROM idempotency.audit_chain WHERE number > logged))",
        config::log_audit ? "true" : "false");
    if (first_moment(kAuditTable, sql) == DT_NOBEGIN) return DT_NOBEGIN;
    if (config::audit_retention == 0) return DT_NOEND;
    return delayed(oldest_row(kAuditTable, pg::table_oid(kAuditTable), "decided_at"),
                   config::audit_retention);
}

}  // namespace idem::store
