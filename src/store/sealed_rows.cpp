#include "store/sealed_rows.hpp"

#include "pg/owner.hpp"

namespace idem::store {

namespace {

using Sql = pg::SqlText;

constexpr const char* kSealedBy = column_of(&Record::sealed_by).name;

void add_table(Sql* sql, const RecordTable& table) {
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
void run(const Sql& sql, int count, const Oid* types, Datum* values, const char* nulls,
         pg::Access access, Take take) {
    pg::Statement statement = {sql.text, count, types, access, nullptr};
    pg::AsOwner frame = pg::begin_as_owner(kRecordTable);
    std::uint64_t rows = pg::run_read(&statement, values, nulls);
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

}  // namespace

SealedBy* sealed_records(const RecordTable& table, int* count) {
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
    run(sql, 0, nullptr, nullptr, nullptr, pg::Access::Whole,
        [&](std::uint64_t, std::uint64_t rows, HeapTuple row, TupleDesc shape) {
            if (result == nullptr) result = static_cast<SealedBy*>(palloc(sizeof(SealedBy) * rows));
            result[(*count)++] = {text_at(row, shape, 1), number_at(row, shape, 2)};
        });
    return result;
}

std::int64_t sealed_otherwise(const RecordTable& table, text* key_id) {
    Sql sql{};
    sql.add("SELECT pg_catalog.count(*) FROM ");
    add_table(&sql, table);
    sql.add(" WHERE ");
    sql.add(kSealedBy);
    sql.add(" OPERATOR(pg_catalog.<>) $1");
    Datum value = PointerGetDatum(key_id);
    std::int64_t records = 0;
    run(sql, 1, kKeyIdAndPlace, &value, nullptr, pg::Access::Whole,
        [&records](std::uint64_t, std::uint64_t, HeapTuple row, TupleDesc shape) {
            records = number_at(row, shape, 1);
        });
    return records;
}

// A look for each batch goes on where the last one ended, by the index; it would otherwise pass the
// rows of all batches before it again.
int next_sealed_otherwise(const RecordTable& table, text* key_id, const Identity& after, int limit,
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
    run(sql, std::size(kKeyIdAndPlace), kKeyIdAndPlace, values, nullptr, pg::Access::ByIndex,
        [&count, found](std::uint64_t, std::uint64_t, HeapTuple row, TupleDesc shape) {
            Identity id{};
            for (int i = 0; i < kKeyColumns; i++) id.*kPrimaryKey[i] = text_at(row, shape, i + 1);
            found[count++] = make_identity(id.scope, id.principal, id.key);
        });
    return count;
}

}  // namespace idem::store
