#include "pg/errors.hpp"
#include "pg/owner.hpp"
#include "store/columns.hpp"
#include "store/record_table.hpp"
#include "store/row_versions.hpp"
#include "store/store.hpp"

namespace idem::store {

namespace {

// Of a Version: token, status, end of the lease.
constexpr int kVersionValues = 3;
constexpr Oid kIdentityAndVersion[] = {TEXTOID, TEXTOID, TEXTOID, INT8OID, CHAROID, TIMESTAMPTZOID};
constexpr Oid kTimesAndLimit[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID};

// The types of a row and of the version that it is expected to replace.
struct RowTypes {
    Oid types[kColumns + kVersionValues];
};

constexpr RowTypes row_and_version() {
    RowTypes result{};
    for (int i = 0; i < kColumns; i++) result.types[i] = kColumnTypes[i].type;
    for (int i = 0; i < kVersionValues; i++)
        result.types[kColumns + i] = kIdentityAndVersion[kKey + 1 + i];
    return result;
}

constexpr RowTypes kRowAndVersion = row_and_version();

using Sql = pg::SqlText;

constexpr void add_column_names(Sql* sql) {
    for (int i = 0; i < kColumns; i++) {
        if (i > 0) sql->add(", ");
        sql->add(kColumnTypes[i].name);
    }
}

// The row of an identity, which are the first columns: by the whole primary key, so that a
// distributed table can route it.
constexpr void add_this_row(Sql* sql) {
    static_assert(kScope == 0 && kPrincipal == 1 && kKey == 2);
    sql->add(
        " WHERE scope OPERATOR(pg_catalog.=) $1 AND principal OPERATOR(pg_catalog.=) $2"
        " AND key OPERATOR(pg_catalog.=) $3");
}

// `first` is the number of the parameter with the token; those with the status and the end of the
// lease, which is null for any, follow.
constexpr void add_this_version(Sql* sql, int first) {
    sql->add(" AND token OPERATOR(pg_catalog.=) ");
    sql->parameter(first);
    sql->add(" AND status OPERATOR(pg_catalog.=) ");
    sql->parameter(first + 1);
    sql->add(" AND (");
    sql->parameter(first + 2);
    sql->add(" IS NULL OR lease_until OPERATOR(pg_catalog.=) ");
    sql->parameter(first + 2);
    sql->add(")");
}

constexpr Sql find_sql() {
    Sql sql{};
    sql.add("SELECT ");
    add_column_names(&sql);
    sql.add(" FROM idempotency.record");
    add_this_row(&sql);
    return sql;
}

constexpr Sql insert_sql() {
    Sql sql{};
    sql.add("INSERT INTO idempotency.record (");
    add_column_names(&sql);
    sql.add(") VALUES (");
    sql.parameters(1, kColumns);
    sql.add(") ON CONFLICT (scope, principal, key) DO NOTHING");
    return sql;
}

constexpr Sql update_sql() {
    Sql sql{};
    sql.add("UPDATE idempotency.record SET ");
    for (int i = kKey + 1; i < kColumns; i++) {
        if (i > kKey + 1) sql.add(", ");
        sql.add(kColumnTypes[i].name);
        sql.add(" = ");
        sql.parameter(i + 1);
    }
    add_this_row(&sql);
    add_this_version(&sql, kColumns + 1);
    return sql;
}

constexpr Sql delete_sql() {
    Sql sql{};
    sql.add("DELETE FROM idempotency.record");
    add_this_row(&sql);
    add_this_version(&sql, 4);
    return sql;
}

constexpr Sql kFind = find_sql();
constexpr Sql kInsert = insert_sql();
constexpr Sql kUpdate = update_sql();
constexpr Sql kDelete = delete_sql();

pg::Statement find_row = {kFind.text, 3, kIdentityAndVersion, pg::Access::ByIndex, nullptr};
pg::Statement insert_row = {kInsert.text, kColumns, kRowAndVersion.types, pg::Access::ByIndex,
                            nullptr};
pg::Statement update_row = {kUpdate.text, kColumns + kVersionValues, kRowAndVersion.types,
                            pg::Access::ByIndex, nullptr};
pg::Statement delete_row = {kDelete.text, kKey + 1 + kVersionValues, kIdentityAndVersion,
                            pg::Access::ByIndex, nullptr};

// FOR UPDATE looks at the newest version of each row again, so a row that has just been taken over
// is not deleted. The array is made once; a plain IN could run again and go past the limit. The
// conditions stand twice because in a partitioned table a ctid alone does not name a row.
#define MAY_GO                                                                                \
    "retained_until OPERATOR(pg_catalog.>=) $1 AND retained_until OPERATOR(pg_catalog.<=) $2" \
    " AND status OPERATOR(pg_catalog.<>) 'i'::pg_catalog.\"char\""

pg::Statement delete_expired = {
    "WITH deleted AS (DELETE FROM idempotency.record WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
    "SELECT ctid FROM idempotency.record WHERE " MAY_GO
    " ORDER BY retained_until USING OPERATOR(pg_catalog.<) LIMIT $3 FOR UPDATE SKIP LOCKED))"
    " AND " MAY_GO
    " RETURNING scope, retained_until)"
    " SELECT scope, pg_catalog.count(*), pg_catalog.max(retained_until) FROM deleted"
    " GROUP BY scope",
    3, kTimesAndLimit, pg::Access::ByIndex, nullptr};

void identity_values(const Identity& id, Datum* values) {
    values[0] = PointerGetDatum(id.scope);
    values[1] = PointerGetDatum(id.principal);
    values[2] = PointerGetDatum(id.key);
}

// The row as parameters of a statement, and as SPI wants its nulls: ' ' for a value, 'n' for null.
void row_values(const Record& record, Datum* values, char* nulls) {
    bool is_null[kColumns];
    to_columns(record, values, is_null);
    for (int i = 0; i < kColumns; i++) nulls[i] = is_null[i] ? 'n' : ' ';
}

Sight find(const Identity& id, Record* record) {
    Datum values[kColumns];
    bool nulls[kColumns];
    identity_values(id, values);
    pg::AsOwner scope = pg::begin_as_owner("record");
    bool found = pg::run_read(&find_row, values, nullptr) > 0;
    if (found) {
        heap_deform_tuple(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, values, nulls);
        MemoryContext spi_context = MemoryContextSwitchTo(scope.caller_context);
        from_columns(values, nulls, record);
        MemoryContextSwitchTo(spi_context);
    }
    pg::end_as_owner(scope);
    return {found, InvalidTransactionId};
}

// Each write is done when it returns, but for a deferred trigger, which would run at commit, as
// whoever commits.
void reserve() {
    const char* deferred = deferred_trigger();
    if (deferred != nullptr) pg::raise_deferred_trigger(deferred);
    check_updates_are_published();
}

// A write that touched no row, although the row is as it was expected to be.
void check_not_swallowed(const Identity& id, const Version* expected) {
    Record record{};
    bool found = find(id, &record).found;
    bool as_expected = expected == nullptr ? !found : found && is_version(record, *expected);
    if (as_expected) pg::raise_row_swallowed();
}

bool insert(const Record& record) {
    Datum values[kColumns];
    char nulls[kColumns];
    row_values(record, values, nulls);
    if (pg::write_alone("record", &insert_row, values, nulls) > 0) return true;
    check_not_swallowed(record.id, nullptr);
    return false;
}

void version_values(const Version& version, Datum* values, char* nulls) {
    values[0] = Int64GetDatum(version.token);
    values[1] = CharGetDatum(static_cast<char>(version.status));
    values[2] = TimestampTzGetDatum(version.lease_until);
    nulls[0] = nulls[1] = ' ';
    nulls[2] = version.lease_until == pg::kNoTime ? 'n' : ' ';
}

bool update(const Record& record, const Version& expected) {
    Datum values[kColumns + kVersionValues];
    char nulls[kColumns + kVersionValues];
    row_values(record, values, nulls);
    version_values(expected, values + kColumns, nulls + kColumns);
    if (pg::write_alone("record", &update_row, values, nulls) > 0) return true;
    check_not_swallowed(record.id, &expected);
    return false;
}

bool remove(const Identity& id, const Version& expected) {
    Datum values[kKey + 1 + kVersionValues];
    char nulls[] = {' ', ' ', ' ', ' ', ' ', ' '};
    static_assert(sizeof(nulls) == kKey + 1 + kVersionValues);
    identity_values(id, values);
    version_values(expected, values + kKey + 1, nulls + kKey + 1);
    if (pg::write_alone("record", &delete_row, values, nulls) > 0) return true;
    check_not_swallowed(id, &expected);
    return false;
}

// One group of the deleted rows: scope, number, youngest end of retention.
void add_group(HeapTuple group, const Expired& which, Removed* removed) {
    Datum values[3];
    bool nulls[3];
    heap_deform_tuple(group, SPI_tuptable->tupdesc, values, nulls);
    std::int64_t rows = DatumGetInt64(values[1]);
    removed->rows += rows;
    removed->last = Max(removed->last, DatumGetTimestampTz(values[2]));
    if (which.removed != nullptr) which.removed(pg::bytes_of(DatumGetTextPP(values[0])), rows);
}

Removed remove_expired(const Expired& which) {
    Datum values[] = {TimestampTzGetDatum(which.from), TimestampTzGetDatum(which.until),
                      Int64GetDatum(which.limit)};
    Removed removed{0, which.from};
    pg::AsOwner scope = pg::begin_as_owner("record");
    std::uint64_t groups = pg::run_write(&delete_expired, values, nullptr);
    for (std::uint64_t i = 0; i < groups; i++) add_group(SPI_tuptable->vals[i], which, &removed);
    pg::end_as_owner(scope);
    return removed;
}

}  // namespace

const Store sql_store = {
    find,
    versions_known_to,
    versions_busy,
    reserve,
    insert,
    update,
    remove,
    remove_expired,
    /* rows_guard_themselves */ false,
    /* writes_in_callbacks */ false,
};

}  // namespace idem::store
