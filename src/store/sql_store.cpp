#include "pg/errors.hpp"
#include "pg/internal.hpp"
#include "store/columns.hpp"
#include "store/store.hpp"

namespace idem::store {

namespace {

// The column list, in the order of enum Column.
#define COLUMNS                                                                                \
    "scope, principal, key, status, held, no_takeover, body_omitted, status_code, attempt,"    \
    " token, lease_us, created_at, claimed_at, expires_at, retained_until, lease_until,"       \
    " next_attempt_at, finished_at, fingerprint, headers, body, error, recovery_point, state," \
    " holder, request, resolved_by"

// The row of an identity: the whole primary key, so that a distributed table can route it.
#define THIS_ROW                                                              \
    "scope OPERATOR(pg_catalog.=) $1 AND principal OPERATOR(pg_catalog.=) $2" \
    " AND key OPERATOR(pg_catalog.=) $3"

constexpr Oid kIdentityAndVersion[] = {TEXTOID, TEXTOID, TEXTOID, INT8OID, CHAROID};
constexpr Oid kTimesAndLimit[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID};

// The types of a row and of the version that it is expected to replace.
struct RowTypes {
    Oid types[kColumns + 2];
};

constexpr RowTypes row_and_version() {
    RowTypes result{};
    for (int i = 0; i < kColumns; i++) result.types[i] = kColumnTypes[i].type;
    result.types[kColumns] = INT8OID;
    result.types[kColumns + 1] = CHAROID;
    return result;
}

constexpr RowTypes kRowAndVersion = row_and_version();

pg::Statement find_row = {"SELECT " COLUMNS " FROM idempotency.record WHERE " THIS_ROW, 3,
                          kIdentityAndVersion, pg::Access::ByIndex, nullptr};

pg::Statement insert_row = {
    "INSERT INTO idempotency.record (" COLUMNS
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,"
    " $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27)"
    " ON CONFLICT (scope, principal, key) DO NOTHING",
    kColumns, kRowAndVersion.types, pg::Access::ByIndex, nullptr};

pg::Statement update_row = {
    "UPDATE idempotency.record SET status = $4, held = $5, no_takeover = $6, body_omitted = $7,"
    " status_code = $8, attempt = $9, token = $10, lease_us = $11, created_at = $12,"
    " claimed_at = $13, expires_at = $14, retained_until = $15, lease_until = $16,"
    " next_attempt_at = $17, finished_at = $18, fingerprint = $19, headers = $20, body = $21,"
    " error = $22, recovery_point = $23, state = $24, holder = $25, request = $26,"
    " resolved_by = $27"
    " WHERE " THIS_ROW
    " AND token OPERATOR(pg_catalog.=) $28 AND status OPERATOR(pg_catalog.=) $29",
    kColumns + 2, kRowAndVersion.types, pg::Access::ByIndex, nullptr};

pg::Statement delete_row = {"DELETE FROM idempotency.record WHERE " THIS_ROW
                            " AND token OPERATOR(pg_catalog.=) $4"
                            " AND status OPERATOR(pg_catalog.=) $5",
                            5, kIdentityAndVersion, pg::Access::ByIndex, nullptr};

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
    pg::Internal scope = pg::begin_internal();
    bool found = pg::run_read(&find_row, values, nullptr) > 0;
    if (found) {
        heap_deform_tuple(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, values, nulls);
        MemoryContext spi_context = MemoryContextSwitchTo(scope.caller_context);
        from_columns(values, nulls, record);
        MemoryContextSwitchTo(spi_context);
    }
    pg::end_internal(scope);
    return {found, InvalidTransactionId};
}

void insert(const Record& record) {
    Datum values[kColumns];
    char nulls[kColumns];
    row_values(record, values, nulls);
    if (pg::write_alone(&insert_row, values, nulls) == 0) pg::raise_claim_overtaken();
}

void version_values(const Version& version, Datum* values) {
    values[0] = Int64GetDatum(version.token);
    values[1] = CharGetDatum(static_cast<char>(version.status));
}

bool update(const Record& record, const Version& expected) {
    Datum values[kColumns + 2];
    char nulls[kColumns + 2];
    row_values(record, values, nulls);
    version_values(expected, values + kColumns);
    nulls[kColumns] = nulls[kColumns + 1] = ' ';
    return pg::write_alone(&update_row, values, nulls) > 0;
}

bool remove(const Identity& id, const Version& expected) {
    Datum values[5];
    identity_values(id, values);
    version_values(expected, values + 3);
    return pg::write_alone(&delete_row, values, nullptr) > 0;
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
    pg::Internal scope = pg::begin_internal();
    std::uint64_t groups = pg::run_write(&delete_expired, values, nullptr);
    for (std::uint64_t i = 0; i < groups; i++) add_group(SPI_tuptable->vals[i], which, &removed);
    pg::end_internal(scope);
    return removed;
}

}  // namespace

const Store sql_store = {find, insert, update, remove, remove_expired, false};

}  // namespace idem::store
