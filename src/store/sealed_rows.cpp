#include "store/sealed_rows.hpp"

#include "pg/owner.hpp"
#include "store/distribution.hpp"
#include "store/record_table.hpp"

namespace idem::store {

namespace {

using Sql = pg::SqlText;

constexpr const char* kSealedBy = column_of(&Record::sealed_by).name;

void add_table(Sql* sql, const SealedTable& table) {
    sql->add(quote_qualified_identifier(get_namespace_name(get_rel_namespace(table.table)),
                                        get_rel_name(table.table)));
}

void add_key_columns(Sql* sql, const char* before = "") {
    for (int i = 0; i < kKeyColumns; i++) {
        if (i > 0) sql->add(", ");
        sql->add(column_of(kPrimaryKey[i]).name);
        sql->add(before);
    }
}

// One run of a statement of this table; `take` is called with each row.
template <typename Take>
void run(const SealedTable& table, const Sql& sql, int count, const Oid* types, Datum* values,
         const char* nulls, pg::Access access, Take take) {
    pg::Statement statement = {sql.text, count, types, access, nullptr};
    pg::AsOwner frame = pg::begin_as_owner(table.ours);
    std::uint64_t rows = has_attempts(table) ? pg::run_write(&statement, values, nulls)
                                             : pg::run_read(&statement, values, nulls);
    SPITupleTable* found = SPI_tuptable;
    MemoryContext spi_context = MemoryContextSwitchTo(frame.caller_context);
    for (std::uint64_t i = 0; i < rows; i++) take(i, rows, found->vals[i], found->tupdesc);
    MemoryContextSwitchTo(spi_context);
    pg::drop_plan(&statement);
    pg::end_as_owner(frame);
}

std::int64_t number_at(HeapTuple row, TupleDesc shape, int column) {
    bool null;
    return DatumGetInt64(SPI_getbinval(row, shape, column, &null));
}

text* text_at(HeapTuple row, TupleDesc shape, int column) {
    bool null;
    return DatumGetTextPCopy(SPI_getbinval(row, shape, column, &null));
}

constexpr Oid kKeyIdAndPlace[] = {TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID};

bytea* bytea_at(HeapTuple row, TupleDesc shape, int column) {
    bool null;
    Datum value = SPI_getbinval(row, shape, column, &null);
    return null ? nullptr : DatumGetByteaPCopy(value);
}

constexpr Oid kAttemptsPlace[] = {TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, INT8OID};

constexpr Oid kReplaced[] = {TEXTOID, TEXTOID,  TEXTOID,  INT8OID,
                             TEXTOID, BYTEAOID, BYTEAOID, BYTEAOID};
constexpr int kReplacedValues = static_cast<int>(std::size(kReplaced));

void add_shards_with_attempts(SealedTable* found, int* count, const Distribution& shards) {
    for (int i = 0; i < shards.count; i++)
        if (OidIsValid(shards.shards[i].table))
            found[(*count)++] = {kAttemptTable, shards.shards[i].table};
}

}  // namespace

SealedTable* local_sealed_tables(int* count) {
    int records;
    const RecordTable* tables = local_tables(&records);
    Oid attempts = pg::table_oid(kAttemptTable);
    Distribution shards = distribution_of(attempts, "principal", CurrentMemoryContext);
    auto* found = static_cast<SealedTable*>(
        palloc(sizeof(SealedTable) * static_cast<Size>(records + shards.count + 1)));
    for (*count = 0; *count < records; (*count)++)
        found[*count] = {kRecordTable, tables[*count].table};
    if (is_distributed())
        add_shards_with_attempts(found, count, shards);
    else
        found[(*count)++] = {kAttemptTable, attempts};
    return found;
}

SealedBy* sealed_rows(const SealedTable& table, int* count) {
    Sql sql{};
    sql.add("SELECT ");
    sql.add(kSealedBy);
    sql.add(", pg_catalog.count(*) FROM ");
    add_table(&sql, table);
    sql.add(" WHERE ");
    sql.add(kSealedBy);
    sql.add(" IS NOT NULL GROUP BY 1");
    SealedBy* result = nullptr;
    *count = 0;
    run(table, sql, 0, nullptr, nullptr, nullptr, pg::Access::Whole,
        [&](std::uint64_t, std::uint64_t rows, HeapTuple row, TupleDesc shape) {
            if (result == nullptr) result = static_cast<SealedBy*>(palloc(sizeof(SealedBy) * rows));
            result[(*count)++] = {text_at(row, shape, 1), number_at(row, shape, 2)};
        });
    return result;
}

std::int64_t sealed_otherwise(const SealedTable& table, text* key_id) {
    Sql sql{};
    sql.add("SELECT pg_catalog.count(*) FROM ");
    add_table(&sql, table);
    sql.add(" WHERE ");
    sql.add(kSealedBy);
    sql.add(" OPERATOR(pg_catalog.<>) $1");
    Datum value = PointerGetDatum(key_id);
    std::int64_t records = 0;
    run(table, sql, 1, kKeyIdAndPlace, &value, nullptr, pg::Access::Whole,
        [&records](std::uint64_t, std::uint64_t, HeapTuple row, TupleDesc shape) {
            records = number_at(row, shape, 1);
        });
    return records;
}

// A look for each batch goes on where the last one ended, by the index; it would otherwise pass the
// rows of all batches before it again.
int next_sealed_otherwise(const SealedTable& table, text* key_id, const Identity& after, int limit,
                          Identity* found) {
    Sql sql{};
    sql.add("SELECT ");
    add_key_columns(&sql);
    sql.add(" FROM ");
    add_table(&sql, table);
    sql.add(" WHERE ");
    sql.add(kSealedBy);
    sql.add(" OPERATOR(pg_catalog.<>) $1 AND ROW(");
    add_key_columns(&sql);
    sql.add(") OPERATOR(pg_catalog.>) ROW(");
    sql.parameters(2, 1 + kKeyColumns);
    sql.add(") ORDER BY ");
    add_key_columns(&sql, " USING OPERATOR(pg_catalog.<)");
    sql.add(" LIMIT $5");
    Datum values[] = {PointerGetDatum(key_id), 0, 0, 0, Int64GetDatum(limit)};
    for (int i = 0; i < kKeyColumns; i++) values[1 + i] = PointerGetDatum(after.*kPrimaryKey[i]);
    int count = 0;
    run(table, sql, std::size(kKeyIdAndPlace), kKeyIdAndPlace, values, nullptr, pg::Access::ByIndex,
        [&count, found](std::uint64_t, std::uint64_t, HeapTuple row, TupleDesc shape) {
            Identity id{};
            for (int i = 0; i < kKeyColumns; i++) id.*kPrimaryKey[i] = text_at(row, shape, i + 1);
            found[count++] = make_identity(id.scope, id.principal, id.key);
        });
    return count;
}

int next_attempts_sealed_otherwise(const SealedTable& table, text* key_id, const Record& after,
                                   int limit, Record* found) {
    Sql sql{};
    sql.add(
        "SELECT key, scope, principal, token, sealed_by, salt, sealed_holder, sealed_error FROM ");
    add_table(&sql, table);
    sql.add(
        " WHERE sealed_by OPERATOR(pg_catalog.<>) $1 AND ROW(key, scope, principal, token)"
        " OPERATOR(pg_catalog.>) ROW($2, $3, $4, $5)"
        " ORDER BY key USING OPERATOR(pg_catalog.<), scope USING OPERATOR(pg_catalog.<),"
        " principal USING OPERATOR(pg_catalog.<), token USING OPERATOR(pg_catalog.<)"
        " LIMIT $6 FOR UPDATE SKIP LOCKED");
    Datum values[] = {PointerGetDatum(key_id),         PointerGetDatum(after.id.key),
                      PointerGetDatum(after.id.scope), PointerGetDatum(after.id.principal),
                      Int64GetDatum(after.token),      Int64GetDatum(limit)};
    int count = 0;
    run(table, sql, std::size(kAttemptsPlace), kAttemptsPlace, values, nullptr, pg::Access::ByIndex,
        [&count, found](std::uint64_t, std::uint64_t, HeapTuple row, TupleDesc shape) {
            Record record{};
            record.id = make_identity(text_at(row, shape, 2), text_at(row, shape, 3),
                                      text_at(row, shape, 1));
            record.token = number_at(row, shape, 4);
            record.sealed_by = text_at(row, shape, 5);
            record.salt = bytea_at(row, shape, 6);
            record.holder.sealed = bytea_at(row, shape, 7);
            record.error.sealed = bytea_at(row, shape, 8);
            found[count++] = record;
        });
    return count;
}

void replace_sealed(const SealedTable& table, const Record* attempts, int count) {
    Sql sql{};
    sql.add("UPDATE ");
    add_table(&sql, table);
    sql.add(
        " SET sealed_by = $5, salt = $6, sealed_holder = $7, sealed_error = $8"
        " WHERE key OPERATOR(pg_catalog.=) $1 AND scope OPERATOR(pg_catalog.=) $2"
        " AND principal OPERATOR(pg_catalog.=) $3 AND token OPERATOR(pg_catalog.=) $4");
    pg::Statement statement = {sql.text, kReplacedValues, kReplaced, pg::Access::ByIndex, nullptr};
    for (int i = 0; i < count; i++) {
        const Record& row = attempts[i];
        Datum values[] = {PointerGetDatum(row.id.key),        PointerGetDatum(row.id.scope),
                          PointerGetDatum(row.id.principal),  Int64GetDatum(row.token),
                          PointerGetDatum(row.sealed_by),     PointerGetDatum(row.salt),
                          PointerGetDatum(row.holder.sealed), PointerGetDatum(row.error.sealed)};
        char nulls[kReplacedValues];
        for (int k = 0; k < kReplacedValues; k++)
            nulls[k] = k != 3 && DatumGetPointer(values[k]) == nullptr ? 'n' : ' ';
        (void)pg::write_alone(table.ours, &statement, values, nulls);
    }
    if (statement.plan != nullptr) pg::drop_plan(&statement);
}

}  // namespace idem::store
