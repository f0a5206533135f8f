// Sweeping is not on the hot path, and its SQL statement is bounded already. So it uses SQL with
// either store.
//
// Each node sweeps its own shards of a distributed table. It does not lock them in place, so it
// never waits for a move. A move either copies the deletions too, or has copied rows that are swept
// on the new node.

#include "store/sweep.hpp"

#include "pg/owner.hpp"
#include "store/record.hpp"
#include "store/record_table.hpp"
#include "store/store.hpp"

namespace idem::store {

namespace {

// $1 from, $2 until, $3 limit
constexpr const char* kMayGo = "retained_until >= $1 AND retained_until <= $2 AND ";

// FOR UPDATE looks at the newest version of each row again, so a row that was just taken over is
// not deleted. The array is computed once; a plain IN could run again and exceed the limit. The
// conditions occur twice because a ctid alone does not identify a row of a partitioned table. The
// second time they are an expression that no index serves. Otherwise, on a small table, the planner
// would read the whole backlog by the index for each batch, with the array as a filter.
const char* sweep_sql(const char* table) {
    return psprintf(R"(
        WITH deleted AS (
            DELETE FROM %1$s
            WHERE ctid = ANY (ARRAY(
                    SELECT ctid FROM %1$s WHERE %2$s%3$s
                    ORDER BY retained_until LIMIT $3 FOR UPDATE SKIP LOCKED))
                AND (%2$s%3$s) IS TRUE
            RETURNING scope, retained_until)
        SELECT scope, count(*), max(retained_until) FROM deleted GROUP BY scope)",
                    table, kMayGo, kGoesByAge);
}

constexpr Oid kTimesAndLimit[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID};

constexpr pg::Statement statement_of(const char* sql) {
    return {sql, std::size(kTimesAndLimit), kTimesAndLimit, pg::Access::ByIndex, nullptr};
}

void run(pg::Statement* statement, const Sweep& which, Swept* swept) {
    Datum values[] = {TimestampTzGetDatum(which.from), TimestampTzGetDatum(which.until),
                      Int64GetDatum(which.limit)};
    pg::AsOwner frame = pg::begin_as_owner(kRecordTable);
    std::uint64_t groups = pg::run_write(statement, values, nullptr);
    pg::take_rows(frame, groups, [&](const pg::FoundRow& group) {
        std::int64_t rows = group.number(2);
        swept->rows += rows;
        swept->last = Max(swept->last, DatumGetTimestampTz(group.value(3)));
        if (which.swept != nullptr) which.swept(pg::bytes_of(group.text_at(1)), rows);
    });
    pg::end_as_owner(frame);
}

// Sweeps as many shards as the limit allows. Each has its own oldest row, so a caller that
// continues starts again from its first `from`.
Swept sweep_shards(const Sweep& which) {
    Swept all{0, which.from};
    ListCell* cell;
    foreach (cell, local_shards()) {
        if (all.rows >= which.limit) break;
        Oid table = lfirst_oid(cell);
        if (!OidIsValid(get_rel_namespace(table))) continue;  // dropped meanwhile
        pg::Statement statement = statement_of(sweep_sql(pg::qualified_name(table)));
        Swept swept{0, which.from};
        run(&statement, {which.from, which.until, which.limit - all.rows, which.swept}, &swept);
        pg::drop_plan(&statement);
        all.rows += swept.rows;
    }
    return all;
}

}  // namespace

Swept sweep(const Sweep& which) {
    if (is_distributed()) return sweep_shards(which);
    check_store();
    // The plan is kept, and its text with it.
    static pg::Statement sweep_rows = statement_of(nullptr);
    if (sweep_rows.plan == nullptr) sweep_rows.sql = sweep_sql("idempotency.record");
    Swept swept{0, which.from};
    run(&sweep_rows, which, &swept);
    return swept;
}

std::int64_t sweep_aged(const char* ours, Oid table, const char* column, TimestampTz until,
                        std::int64_t limit) {
    if (limit <= 0 || !OidIsValid(get_rel_namespace(table))) return 0;  // dropped meanwhile
    constexpr Oid kTimeAndLimit[] = {TIMESTAMPTZOID, INT8OID};
    const char* sql = psprintf(R"(
        DELETE FROM %1$s
        WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM %1$s WHERE %2$s <= $1
                ORDER BY %2$s LIMIT $2 FOR UPDATE SKIP LOCKED))
            AND (%2$s <= $1) IS TRUE)",
                               pg::qualified_name(table), column);
    pg::Statement statement = {sql, std::size(kTimeAndLimit), kTimeAndLimit, pg::Access::ByIndex,
                               nullptr};
    Datum values[] = {TimestampTzGetDatum(until), Int64GetDatum(limit)};
    std::uint64_t rows = pg::write_alone(ours, &statement, values, nullptr);
    pg::drop_plan(&statement);
    return static_cast<std::int64_t>(rows);
}

Backlog backlog(TimestampTz until, std::int64_t limit) {
    int count;
    const RecordTable* tables = local_tables(&count);
    Backlog backlog{0, pg::kNoTime};
    for (int i = 0; i < count && backlog.rows < limit; i++) {
        pg::Statement statement = statement_of(psprintf(
            "SELECT count(*), min(retained_until) FROM ("
            "SELECT retained_until FROM %s WHERE %s%s ORDER BY retained_until LIMIT $3) AS counted",
            pg::qualified_name(tables[i].table), kMayGo, kGoesByAge));
        Datum values[] = {TimestampTzGetDatum(pg::kNoTime), TimestampTzGetDatum(until),
                          Int64GetDatum(limit - backlog.rows)};
        pg::AsOwner frame = pg::begin_as_owner(kRecordTable);
        std::uint64_t answers = pg::run_read(&statement, values, nullptr);
        pg::take_rows(frame, answers, [&backlog](const pg::FoundRow& answer) {
            backlog.rows += answer.number(1);
            if (answer.is_null(2)) return;
            TimestampTz oldest = DatumGetTimestampTz(answer.value(2));
            if (backlog.oldest == pg::kNoTime || oldest < backlog.oldest) backlog.oldest = oldest;
        });
        pg::drop_plan(&statement);
        pg::end_as_owner(frame);
    }
    return backlog;
}

}  // namespace idem::store
