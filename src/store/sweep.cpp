// Sweeping is not the hot path, and the planner's statement for it is bounded already: it is by SQL
// whatever store serves the table.
//
// Of a distributed table each node sweeps the shards that it has, and does not lock them in place,
// to wait for nobody who moves one: whoever copies a shard sends the deletions after it, or has
// copied rows that are swept where they are then.

#include "store/sweep.hpp"

#include "pg/owner.hpp"
#include "store/record.hpp"
#include "store/record_table.hpp"
#include "store/store.hpp"

namespace idem::store {

namespace {

using Sql = pg::SqlText;

constexpr const ColumnType& kScope = column_of(&Identity::scope);
constexpr const ColumnType& kRetainedUntil = column_of(&Record::retained_until);
constexpr const ColumnType& kStatus = column_of(&Record::status);

constexpr void add_may_go(Sql* sql) {
    sql->add(kRetainedUntil.name);
    sql->add(" OPERATOR(pg_catalog.>=) $1 AND ");
    sql->add(kRetainedUntil.name);
    sql->add(" OPERATOR(pg_catalog.<=) $2 AND ");
    sql->add(kStatus.name);
    sql->add(kGoesByAge);
}

// FOR UPDATE looks at the newest version of each row again, so a row that has just been taken over
// is not deleted. The array is made once; a plain IN could run again and go past the limit. The
// conditions stand twice because in a partitioned table a ctid alone does not name a row. The
// second time they are an expression that no index serves: on a small table the planner would read
// the whole backlog by the index, for each batch, and have the array for a filter.
constexpr Sql sweep_sql(const char* table) {
    Sql sql{};
    sql.add("WITH deleted AS (DELETE FROM ");
    sql.add(table);
    sql.add(" WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT ctid FROM ");
    sql.add(table);
    sql.add(" WHERE ");
    add_may_go(&sql);
    sql.add(" ORDER BY ");
    sql.add(kRetainedUntil.name);
    sql.add(" USING OPERATOR(pg_catalog.<) LIMIT $3 FOR UPDATE SKIP LOCKED)) AND (");
    add_may_go(&sql);
    sql.add(") IS TRUE RETURNING ");
    sql.add(kScope.name);
    sql.add(", ");
    sql.add(kRetainedUntil.name);
    sql.add(") SELECT ");
    sql.add(kScope.name);
    sql.add(", pg_catalog.count(*), pg_catalog.max(");
    sql.add(kRetainedUntil.name);
    sql.add(") FROM deleted GROUP BY ");
    sql.add(kScope.name);
    return sql;
}

constexpr Sql kSweep = sweep_sql("idempotency.record");
constexpr Oid kTimesAndLimit[] = {kRetainedUntil.type, kRetainedUntil.type, INT8OID};

pg::Statement sweep_rows = {kSweep.text, std::size(kTimesAndLimit), kTimesAndLimit,
                            pg::Access::ByIndex, nullptr};

// One group of the deleted rows: scope, number, youngest end of retention.
void add_group(HeapTuple group, const Sweep& which, Swept* swept) {
    Datum values[3];
    bool nulls[3];
    heap_deform_tuple(group, SPI_tuptable->tupdesc, values, nulls);
    std::int64_t rows = DatumGetInt64(values[1]);
    swept->rows += rows;
    swept->last = Max(swept->last, DatumGetTimestampTz(values[2]));
    if (which.swept != nullptr) which.swept(pg::bytes_of(DatumGetTextPP(values[0])), rows);
}

void run(pg::Statement* statement, const Sweep& which, Swept* swept) {
    Datum values[] = {TimestampTzGetDatum(which.from), TimestampTzGetDatum(which.until),
                      Int64GetDatum(which.limit)};
    pg::AsOwner frame = pg::begin_as_owner(kRecordTable);
    std::uint64_t groups = pg::run_write(statement, values, nullptr);
    for (std::uint64_t i = 0; i < groups; i++) add_group(SPI_tuptable->vals[i], which, swept);
    pg::end_as_owner(frame);
}

// How many there are, up to the limit, and the oldest.
Sql backlog_sql(const char* table) {
    Sql sql{};
    sql.add("SELECT pg_catalog.count(*), pg_catalog.min(");
    sql.add(kRetainedUntil.name);
    sql.add(") FROM (SELECT ");
    sql.add(kRetainedUntil.name);
    sql.add(" FROM ");
    sql.add(table);
    sql.add(" WHERE ");
    add_may_go(&sql);
    sql.add(" ORDER BY ");
    sql.add(kRetainedUntil.name);
    sql.add(" USING OPERATOR(pg_catalog.<) LIMIT $3) AS counted");
    return sql;
}

void add_answer(HeapTuple answer, TupleDesc desc, Backlog* backlog) {
    bool none;
    backlog->rows += DatumGetInt64(SPI_getbinval(answer, desc, 1, &none));
    TimestampTz oldest = DatumGetTimestampTz(SPI_getbinval(answer, desc, 2, &none));
    bool older = backlog->oldest == pg::kNoTime || oldest < backlog->oldest;
    if (!none && older) backlog->oldest = oldest;
}

// Of as many shards as the limit allows. Each has an oldest row of its own, so a caller who goes on
// begins where it began.
Swept sweep_shards(const Sweep& which) {
    Swept all{0, which.from};
    ListCell* cell;
    foreach (cell, local_shards()) {
        if (all.rows >= which.limit) break;
        Oid table = lfirst_oid(cell);
        if (!OidIsValid(get_rel_namespace(table))) continue;  // it has gone meanwhile
        Sql sql = sweep_sql(pg::qualified_name(table));
        pg::Statement statement = {sql.text, std::size(kTimesAndLimit), kTimesAndLimit,
                                   pg::Access::ByIndex, nullptr};
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
    Swept swept{0, which.from};
    run(&sweep_rows, which, &swept);
    return swept;
}

std::int64_t sweep_aged(const char* ours, Oid table, const char* column, TimestampTz until,
                        std::int64_t limit) {
    if (limit <= 0 || !OidIsValid(get_rel_namespace(table))) return 0;  // it has gone meanwhile
    const char* name = pg::qualified_name(table);
    constexpr Oid kTimeAndLimit[] = {TIMESTAMPTZOID, INT8OID};
    pg::Statement statement = {
        psprintf("DELETE FROM %s WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT ctid FROM %s"
                 " WHERE %s OPERATOR(pg_catalog.<=) $1"
                 " ORDER BY %s USING OPERATOR(pg_catalog.<) LIMIT $2 FOR UPDATE SKIP LOCKED))"
                 " AND (%s OPERATOR(pg_catalog.<=) $1) IS TRUE",
                 name, name, column, column, column),
        std::size(kTimeAndLimit), kTimeAndLimit, pg::Access::ByIndex, nullptr};
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
        Sql sql = backlog_sql(pg::qualified_name(tables[i].table));
        pg::Statement statement = {sql.text, std::size(kTimesAndLimit), kTimesAndLimit,
                                   pg::Access::ByIndex, nullptr};
        Datum values[] = {TimestampTzGetDatum(pg::kNoTime), TimestampTzGetDatum(until),
                          Int64GetDatum(limit - backlog.rows)};
        pg::AsOwner frame = pg::begin_as_owner(kRecordTable);
        (void)pg::run_read(&statement, values, nullptr);
        add_answer(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, &backlog);
        pg::drop_plan(&statement);
        pg::end_as_owner(frame);
    }
    return backlog;
}

}  // namespace idem::store
