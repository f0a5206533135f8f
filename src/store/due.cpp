// The index of retryable records begins with the scope, so that the records of other scopes are not
// read, however many are due. Scopes are found by jumping from one to the next in that index. The
// claims in progress have an index of their own, from which all of them are read: the end of a
// lease is in no index, so that a heartbeat stays a HOT update.

#include "store/due.hpp"

#include <algorithm>

#include "pg/owner.hpp"
#include "store/record_table.hpp"

namespace idem::store {

namespace {

// The statements name them.
static_assert(static_cast<char>(core::Status::Retryable) == 'r');
static_assert(static_cast<char>(core::Status::InProgress) == 'i');
static_assert(static_cast<char>(core::IfSilent::Takeover) == 't');
static_assert(kForKey == 8);

// $1: the beginning of a scope
constexpr const char* kScopes = R"(
    WITH RECURSIVE retryable(scope) AS (
        SELECT min(scope) FROM %1$s WHERE status = 'r' AND scope >= $1
        UNION ALL
        SELECT (SELECT min(r.scope) FROM %1$s r WHERE r.status = 'r' AND r.scope > s.scope)
        FROM retryable s WHERE starts_with(s.scope, $1))
    SELECT scope FROM retryable WHERE starts_with(scope, $1)
    UNION
    SELECT scope FROM %1$s WHERE status = 'i' AND starts_with(scope, $1))";

// $1 scopes, $2 since later than, $3 now, $4 limit. A claim with a backend may lapse before its
// lease ends. One of a derived key is not taken over after the window of the key.
constexpr const char* kDue = R"(
    SELECT scope, principal, key, since FROM (
        SELECT r.* FROM (SELECT unnest($1) COLLATE "C" AS scope) s CROSS JOIN LATERAL (
            SELECT t.scope, t.principal, t.key, t.next_attempt_at AS since FROM %1$s t
            WHERE t.status = 'r' AND t.scope = s.scope AND t.next_attempt_at > $2
                AND t.next_attempt_at <= $3 AND t.expires_at > $3
            ORDER BY t.next_attempt_at FETCH FIRST ($4) ROWS WITH TIES) r
        UNION ALL
        SELECT t.scope, t.principal, t.key, least(t.lease_until, $3) FROM %1$s t
        WHERE t.status = 'i' AND t.if_silent = 't' AND t.scope = ANY ($1)
            AND (t.lease_until <= $3 OR t.backend_pid IS NOT NULL)
            AND least(t.lease_until, $3) > $2
            AND ((t.fingerprint_of & 8 = 8) IS NOT TRUE OR t.retained_until > $3)) AS due
    ORDER BY since FETCH FIRST ($4) ROWS WITH TIES)";

// $1 now
constexpr const char* kGroups = R"(
    SELECT scope, status, attempt, resolved, count(*), min(since) FROM (
        SELECT scope, status, attempt, resolved_by IS NOT NULL AS resolved, next_attempt_at AS since
        FROM %1$s WHERE status = 'r' AND next_attempt_at <= $1 AND expires_at > $1
        UNION ALL
        SELECT scope, status, attempt, false, lease_until FROM %1$s
        WHERE status = 'i' AND if_silent = 't' AND lease_until <= $1
            AND ((fingerprint_of & 8 = 8) IS NOT TRUE OR retained_until > $1)) AS due
    GROUP BY scope, status, attempt, resolved ORDER BY scope)";

// Runs a statement about a table; take(row) gets each row. A shard may have been dropped since.
template <typename Take>
void read(Oid table, const char* sql, int count, const Oid* types, Datum* values, Take take) {
    if (!OidIsValid(get_rel_namespace(table))) return;
    pg::Statement statement = {psprintf(sql, pg::qualified_name(table)), count, types,
                               pg::Access::ByIndex, nullptr};
    pg::AsOwner frame = pg::begin_as_owner(kRecordTable);
    std::uint64_t rows = pg::run_read(&statement, values, nullptr);
    pg::take_rows(frame, rows, [&](const pg::FoundRow& row) { take(rows, row); });
    pg::drop_plan(&statement);
    pg::end_as_owner(frame);
}

// Room for more items of an array in the current memory context.
template <typename T>
void grow(T** items, int count, std::uint64_t more) {
    Size size = sizeof(T) * (static_cast<Size>(count) + static_cast<Size>(more));
    *items = static_cast<T*>(*items == nullptr ? palloc(size) : repalloc(*items, size));
}

void add_scopes(Oid table, text* prefix, Scopes* scopes) {
    constexpr Oid kPrefix[] = {TEXTOID};
    Datum value = PointerGetDatum(prefix);
    bool grown = false;
    read(table, kScopes, 1, kPrefix, &value, [&](std::uint64_t rows, const pg::FoundRow& row) {
        if (!grown) grow(&scopes->names, scopes->count, rows);
        grown = true;
        scopes->names[scopes->count++] = row.text_at(1);
    });
}

// Two shards may have records of one scope.
void drop_doubles(Scopes* scopes) {
    auto less = [](const text* a, const text* b) { return pg::bytes_of(a) < pg::bytes_of(b); };
    auto same = [](const text* a, const text* b) { return pg::bytes_of(a) == pg::bytes_of(b); };
    text** end = scopes->names + scopes->count;
    std::sort(scopes->names, end, less);
    scopes->count = static_cast<int>(std::unique(scopes->names, end, same) - scopes->names);
}

// Those of several tables: as a statement on all of them would have ordered and ended them.
void keep_first(int limit, DueRecords* found) {
    auto older = [](const DueRecord& a, const DueRecord& b) { return a.since < b.since; };
    std::sort(found->items, found->items + found->count, older);
    if (found->count <= limit) return;
    TimestampTz last = found->items[limit - 1].since;
    while (found->items[found->count - 1].since > last) found->count--;
}

}  // namespace

Scopes active_scopes(std::string_view pattern) {
    Scopes scopes{nullptr, 0};
    if (pattern.empty() || pattern.back() != '*') {
        grow(&scopes.names, 0, 1);
        scopes.names[scopes.count++] = pg::make_text(pattern);
        return scopes;
    }
    text* prefix = pg::make_text(pattern.substr(0, pattern.size() - 1));
    int count;
    const RecordTable* tables = local_tables(&count);
    for (int i = 0; i < count; i++) add_scopes(tables[i].table, prefix, &scopes);
    if (count > 1 && scopes.count > 1) drop_doubles(&scopes);
    return scopes;
}

DueRecords due_records(const Scopes& scopes, TimestampTz after, TimestampTz now, int limit) {
    constexpr Oid kTypes[] = {TEXTARRAYOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID};
    auto* names =
        static_cast<Datum*>(palloc(sizeof(Datum) * (static_cast<Size>(scopes.count) + 1)));
    for (int i = 0; i < scopes.count; i++) names[i] = PointerGetDatum(scopes.names[i]);
    Datum values[] = {
        PointerGetDatum(construct_array(names, scopes.count, TEXTOID, -1, false, TYPALIGN_INT)),
        TimestampTzGetDatum(after), TimestampTzGetDatum(now), Int64GetDatum(limit)};
    DueRecords found{nullptr, 0};
    int count;
    const RecordTable* tables = local_tables(&count);
    for (int i = 0; i < count; i++) {
        bool grown = false;
        read(tables[i].table, kDue, std::size(kTypes), kTypes, values,
             [&](std::uint64_t rows, const pg::FoundRow& row) {
                 if (!grown) grow(&found.items, found.count, rows);
                 grown = true;
                 found.items[found.count++] = {
                     make_identity(row.text_at(1), row.text_at(2), row.text_at(3)),
                     DatumGetTimestampTz(row.value(4))};
             });
    }
    if (count > 1 && found.count > 1) keep_first(limit, &found);
    return found;
}

DueGroup* due_groups(Oid table, TimestampTz now, int* count) {
    constexpr Oid kNow[] = {TIMESTAMPTZOID};
    Datum value = TimestampTzGetDatum(now);
    DueGroup* found = nullptr;
    *count = 0;
    read(table, kGroups, 1, kNow, &value, [&](std::uint64_t rows, const pg::FoundRow& row) {
        if (found == nullptr) grow(&found, 0, rows);
        found[(*count)++] = {row.text_at(1),
                             static_cast<core::Status>(DatumGetChar(row.value(2))),
                             DatumGetInt32(row.value(3)),
                             DatumGetBool(row.value(4)),
                             row.number(5),
                             DatumGetTimestampTz(row.value(6))};
    });
    return found;
}

}  // namespace idem::store
