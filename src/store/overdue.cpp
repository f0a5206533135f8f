// Uses SQL with either store, like sweeping. The index on claims in progress finds them, however
// many records there are. No lease ends before its claim begins, so younger claims are not read.

#include "store/overdue.hpp"

#include "pg/owner.hpp"
#include "store/record_table.hpp"

namespace idem::store {

namespace {

// The statements name the status.
static_assert(static_cast<char>(core::Status::InProgress) == 'i');

// The maximum number of claims per table whose leases are read. It takes some milliseconds.
constexpr int kMostLeases = 10000;

// The walk goes by OID, so it continues after a table that has gone. InvalidOid: no more tables.
Oid first_table_from(Oid least) {
    int count;
    RecordTable* tables = local_tables(&count);
    Oid first = InvalidOid;
    for (int i = 0; i < count; i++)
        if (tables[i].table >= least && (!OidIsValid(first) || tables[i].table < first))
            first = tables[i].table;
    return first;
}

void read_batch(WalkPosition* from, TimestampTz until, int limit, Overdue* found) {
    constexpr Oid kTimesAndLimit[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID};
    const char* sql = psprintf(R"(
        SELECT scope, principal, key, claimed_at FROM %s
        WHERE status = 'i' AND claimed_at > $1 AND claimed_at <= $2 AND lease_until <= $2
        ORDER BY claimed_at FETCH FIRST ($3) ROWS WITH TIES)",
                               pg::qualified_name(from->table));
    pg::Statement statement = {sql, std::size(kTimesAndLimit), kTimesAndLimit, pg::Access::ByIndex,
                               nullptr};
    Datum values[] = {TimestampTzGetDatum(from->claimed_at), TimestampTzGetDatum(until),
                      Int64GetDatum(limit)};
    pg::AsOwner frame = pg::begin_as_owner(kRecordTable);
    std::uint64_t rows = pg::run_read(&statement, values, nullptr);
    found->count = static_cast<int>(rows);
    found->claims = pg::made_of_rows(frame, rows, [from](const pg::FoundRow& row) {
        from->claimed_at = DatumGetTimestampTz(row.value(4));
        return make_identity(row.text_at(1), row.text_at(2), row.text_at(3));
    });
    pg::drop_plan(&statement);
    pg::end_as_owner(frame);
}

void read_leases(Oid table, FirstLeases* leases) {
    constexpr Oid kLimit[] = {INT8OID};
    const char* sql = psprintf(R"(
        SELECT scope, if_silent, min(lease_until), count(*)
        FROM (SELECT scope, if_silent, lease_until FROM %s WHERE status = 'i' LIMIT $1) AS claims
        GROUP BY scope, if_silent)",
                               pg::qualified_name(table));
    pg::Statement statement = {sql, std::size(kLimit), kLimit, pg::Access::ByIndex, nullptr};
    Datum values[] = {Int64GetDatum(kMostLeases)};
    pg::AsOwner frame = pg::begin_as_owner(kRecordTable);
    std::uint64_t groups = pg::run_read(&statement, values, nullptr);
    Size size = sizeof(FirstLease) * (static_cast<Size>(leases->count) + groups + 1);
    leases->items = static_cast<FirstLease*>(leases->items == nullptr
                                                 ? MemoryContextAlloc(frame.caller_context, size)
                                                 : repalloc(leases->items, size));
    std::int64_t claims = 0;
    pg::take_rows(frame, groups, [&](const pg::FoundRow& row) {
        claims += row.number(4);
        if (row.is_null(3)) return;
        leases->items[leases->count++] = {row.text_at(1),
                                          static_cast<core::IfSilent>(DatumGetChar(row.value(2))),
                                          DatumGetTimestampTz(row.value(3))};
    });
    if (claims >= kMostLeases) leases->complete = false;
    pg::drop_plan(&statement);
    pg::end_as_owner(frame);
}

}  // namespace

FirstLeases first_leases() {
    int count;
    const RecordTable* tables = local_tables(&count);
    FirstLeases leases{nullptr, 0, true};
    for (int i = 0; i < count && leases.complete; i++)
        if (OidIsValid(get_rel_namespace(tables[i].table))) read_leases(tables[i].table, &leases);
    return leases;
}

Overdue find_overdue(WalkPosition* from, TimestampTz until, int limit) {
    Overdue found{nullptr, 0, false};
    Oid table = first_table_from(from->table);
    if (table != from->table) *from = WalkPosition{table, DT_NOBEGIN};
    if (OidIsValid(table)) {
        if (OidIsValid(get_rel_namespace(table))) read_batch(from, until, limit, &found);
        if (found.count < limit) *from = WalkPosition{first_table_from(table + 1), DT_NOBEGIN};
    }
    found.at_end = !OidIsValid(from->table);
    return found;
}

}  // namespace idem::store
