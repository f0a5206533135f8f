#include "worker/journal.hpp"

#include "pg/clock.hpp"
#include "pg/internal.hpp"

namespace idem::worker {

namespace {

constexpr Oid kTypes[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, TEXTOID};

// $1 start, $2 end, $3 rows, $4 error. The last error stays visible after the next good run, with
// "failures" back at zero.
pg::Statement write_entry = {
    "UPDATE idempotency.journal SET last_run = $1,"
    " last_duration = $2 OPERATOR(pg_catalog.-) $1, last_rows = $3,"
    " total_rows = total_rows OPERATOR(pg_catalog.+) $3,"
    " failures = CASE WHEN $4 IS NULL THEN 0 ELSE failures OPERATOR(pg_catalog.+) 1 END,"
    " last_error = COALESCE($4, last_error),"
    " last_error_at = CASE WHEN $4 IS NULL THEN last_error_at ELSE $2 END"
    " WHERE $3 OPERATOR(pg_catalog.>) 0 OR $4 IS NOT NULL"
    " OR failures OPERATOR(pg_catalog.>) 0 OR last_run IS NULL"
    " OR last_run OPERATOR(pg_catalog.>) $1"
    " OR last_run OPERATOR(pg_catalog.<)"
    " ($1 OPERATOR(pg_catalog.-) '10 minutes'::pg_catalog.interval)",
    4, kTypes, pg::Access::Whole, nullptr};

}  // namespace

void write_journal(const JournalEntry& entry) {
    TimestampTz ended = entry.started + (pg::monotonic_micros() - entry.start);
    Datum values[] = {TimestampTzGetDatum(entry.started), TimestampTzGetDatum(ended),
                      Int64GetDatum(entry.rows),
                      entry.error == nullptr ? 0 : CStringGetTextDatum(entry.error)};
    char nulls[] = {' ', ' ', ' ', entry.error == nullptr ? 'n' : ' '};
    (void)pg::write_alone("journal", &write_entry, values, nulls);
}

}  // namespace idem::worker
