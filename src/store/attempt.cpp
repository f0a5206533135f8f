#include "store/attempt.hpp"

#include <iterator>

#include "pg/citus.hpp"
#include "pg/owner.hpp"
#include "store/deferred.hpp"
#include "store/record_table.hpp"
#include "store/store_errors.hpp"
#include "store/sweep.hpp"

namespace idem::store {

namespace {

constexpr const char* kWords[] = {"completed", "failed",   "retryable",  "exhausted", "unknown",
                                  "silent",    "released", "taken_over", "cut_off"};

constexpr Oid kRowTypes[] = {TEXTOID, TEXTOID,        TEXTOID,        INT4OID,        INT8OID,
                             TEXTOID, BYTEAOID,       TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID,
                             INT4OID, TEXTOID,        BYTEAOID,       TEXTOID,        BYTEAOID,
                             TEXTOID, TIMESTAMPTZOID, TEXTOID,        BYTEAOID};
constexpr int kRowValues = static_cast<int>(std::size(kRowTypes));

pg::Statement insert_row = {
    "INSERT INTO idempotency.attempt (scope, principal, key, attempt, token, holder, sealed_holder,"
    " begun, ended, how, status_code, error, sealed_error, sealed_by, salt, resolved_by,"
    " retained_until, reference, sealed_reference)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,"
    " $19)",
    kRowValues, kRowTypes, pg::Access::ByIndex, nullptr};

constexpr Oid kClaimTypes[] = {TEXTOID, TEXTOID, TEXTOID, INT8OID};
pg::Statement delete_row = {
    "DELETE FROM idempotency.attempt WHERE key = $1 AND scope = $2"
    " AND principal = $3 AND token = $4",
    static_cast<int>(std::size(kClaimTypes)), kClaimTypes, pg::Access::ByIndex, nullptr};

constexpr Oid kKeyTypes[] = {TEXTOID, TEXTOID, TEXTOID};
pg::Statement delete_rows = {
    "DELETE FROM idempotency.attempt WHERE key = $1 AND scope = $2"
    " AND principal = $3",
    static_cast<int>(std::size(kKeyTypes)), kKeyTypes, pg::Access::ByIndex, nullptr};

constexpr Oid kPrincipalAndScopes[] = {TEXTOID, TEXTARRAYOID};
pg::Statement count_by_scope = {
    "SELECT scope, count(*) FROM idempotency.attempt WHERE principal = $1"
    " GROUP BY scope",
    1, kPrincipalAndScopes, pg::Access::Whole, nullptr};
pg::Statement delete_principal = {
    "DELETE FROM idempotency.attempt WHERE principal = $1 AND scope <> ALL ($2)",
    static_cast<int>(std::size(kPrincipalAndScopes)), kPrincipalAndScopes, pg::Access::Whole,
    nullptr};

pg::Statement select_rows = {
    "SELECT attempt, holder, sealed_holder, begun, ended, how, status_code, error, sealed_error,"
    " sealed_by, salt, resolved_by, retained_until, reference, sealed_reference"
    " FROM idempotency.attempt"
    " WHERE key = $1 AND scope = $2 AND principal = $3"
    " ORDER BY ended, token",
    static_cast<int>(std::size(kKeyTypes)), kKeyTypes, pg::Access::ByIndex, nullptr};

KeptAttempt kept_attempt(const pg::FoundRow& row, const Identity& id) {
    KeptAttempt attempt{};
    Record* record = &attempt.record;
    record->id = id;
    record->attempt = DatumGetInt32(row.value(1));
    record->holder = {row.text_at(2), row.text_at(3)};
    record->claimed_at = DatumGetTimestampTz(row.value(4));
    record->finished_at = DatumGetTimestampTz(row.value(5));
    attempt.how = row.text_at(6);
    if (!row.is_null(7)) record->status_code = DatumGetInt32(row.value(7));
    record->error = {row.text_at(8), row.text_at(9)};
    record->sealed_by = row.text_at(10);
    record->salt = row.text_at(11);
    record->resolved_by = row.text_at(12);
    record->retained_until = DatumGetTimestampTz(row.value(13));
    record->reference = {row.text_at(14), row.text_at(15)};
    return attempt;
}

// The value of a column; null if there is none.
Datum or_null(const void* value, char* null) {
    *null = value == nullptr ? 'n' : ' ';
    return PointerGetDatum(value);
}

// A sealed value is not also written in the clear. Both are still in memory when it was just
// sealed.
const text* in_the_clear(const Kept<text>& value) {
    return value.sealed == nullptr ? value.plain : nullptr;
}

}  // namespace

void reserve_attempt() {
    Relation table =
        table_open(pg::lock_table(kAttemptTable, RowExclusiveLock), /* locked */ NoLock);
    refuse_deferred_trigger(table);
    table_close(table, NoLock);
}

void add_attempt(const Attempt& attempt) {
    const Record& record = *attempt.record;
    bool sealed = record.holder.sealed != nullptr || record.error.sealed != nullptr ||
                  record.reference.sealed != nullptr;
    char nulls[kRowValues];
    memset(nulls, ' ', sizeof(nulls));
    Datum values[] = {PointerGetDatum(record.id.scope),
                      PointerGetDatum(record.id.principal),
                      PointerGetDatum(record.id.key),
                      Int32GetDatum(record.attempt),
                      Int64GetDatum(record.token),
                      or_null(in_the_clear(record.holder), &nulls[5]),
                      or_null(record.holder.sealed, &nulls[6]),
                      TimestampTzGetDatum(record.claimed_at),
                      TimestampTzGetDatum(attempt.ended),
                      CStringGetTextDatum(kWords[static_cast<int>(attempt.how)]),
                      Int32GetDatum(record.status_code.value_or(0)),
                      or_null(in_the_clear(record.error), &nulls[11]),
                      or_null(record.error.sealed, &nulls[12]),
                      or_null(sealed ? record.sealed_by : nullptr, &nulls[13]),
                      or_null(sealed ? record.salt : nullptr, &nulls[14]),
                      or_null(record.resolved_by, &nulls[15]),
                      TimestampTzGetDatum(attempt.retained_until),
                      or_null(in_the_clear(record.reference), &nulls[17]),
                      or_null(record.reference.sealed, &nulls[18])};
    if (!record.status_code) nulls[10] = 'n';
    watched(record.id.scope,
            [&] { (void)pg::write_alone(kAttemptTable, &insert_row, values, nulls); });
}

void remove_attempt(const Identity& id, std::int64_t token) {
    Datum values[] = {PointerGetDatum(id.key), PointerGetDatum(id.scope),
                      PointerGetDatum(id.principal), Int64GetDatum(token)};
    watched(id.scope, [&] { (void)pg::write_alone(kAttemptTable, &delete_row, values, nullptr); });
}

KeptAttempt* attempts_of(const Identity& id, int* count) {
    Datum values[] = {PointerGetDatum(id.key), PointerGetDatum(id.scope),
                      PointerGetDatum(id.principal)};
    pg::AsOwner frame = pg::begin_as_owner(kAttemptTable);
    std::uint64_t rows = pg::run_read(&select_rows, values, nullptr);
    KeptAttempt* kept = pg::made_of_rows(
        frame, rows, [&id](const pg::FoundRow& row) { return kept_attempt(row, id); });
    pg::end_as_owner(frame);
    *count = static_cast<int>(rows);
    return kept;
}

std::int64_t remove_attempts(const Identity& id) {
    Datum values[] = {PointerGetDatum(id.key), PointerGetDatum(id.scope),
                      PointerGetDatum(id.principal)};
    return static_cast<std::int64_t>(pg::write_alone(kAttemptTable, &delete_rows, values, nullptr));
}

ScopeAttempts* attempts_by_scope(const text* principal, int* count) {
    Datum values[] = {PointerGetDatum(principal)};
    pg::AsOwner frame = pg::begin_as_owner(kAttemptTable);
    std::uint64_t rows = pg::run_read(&count_by_scope, values, nullptr);
    ScopeAttempts* scopes = pg::made_of_rows(frame, rows, [](const pg::FoundRow& row) {
        return ScopeAttempts{row.text_at(1), row.number(2)};
    });
    pg::end_as_owner(frame);
    *count = static_cast<int>(rows);
    return scopes;
}

std::int64_t remove_attempts_of(const text* principal, const ArrayType* but_scopes) {
    Datum values[] = {PointerGetDatum(principal), PointerGetDatum(but_scopes)};
    return static_cast<std::int64_t>(
        pg::write_alone(kAttemptTable, &delete_principal, values, nullptr));
}

Oid* local_attempt_tables(int* count) {
    Oid table = pg::table_oid(kAttemptTable);
    pg::Distribution shards{};
    if (is_distributed()) shards = pg::distribution_of(table, "principal", CurrentMemoryContext);
    auto* tables = static_cast<Oid*>(palloc(sizeof(Oid) * static_cast<Size>(shards.count + 1)));
    *count = 0;
    if (!is_distributed()) tables[(*count)++] = table;
    for (int i = 0; i < shards.count; i++)
        if (OidIsValid(shards.shards[i].table)) tables[(*count)++] = shards.shards[i].table;
    return tables;
}

std::int64_t sweep_attempts(std::int64_t limit) {
    TimestampTz now = GetCurrentTimestamp();
    int count;
    const Oid* tables = local_attempt_tables(&count);
    std::int64_t rows = 0;
    for (int i = 0; i < count; i++)
        rows += sweep_aged(kAttemptTable, tables[i], "retained_until", now, limit - rows);
    return rows;
}

}  // namespace idem::store
