#include "store/sealed_rows.hpp"

#include "pg/owner.hpp"
#include "store/record_table.hpp"

namespace idem::store {

namespace {

using Sql = pg::SqlText;

constexpr const char* kSealedBy = column_of(&Record::sealed_by).name;

void add_table(Sql* sql, const SealedTable& table) {
    sql->add(pg::qualified_name(table.table));
}

// The columns of the primary key.
void add_place(Sql* sql, const SealedTable& table, const char* after_each = "") {
    for (int i = 0; i < kKeyColumns; i++) {
        if (i > 0) sql->add(", ");
        sql->add(column_of(kPrimaryKey[i]).name);
        sql->add(after_each);
    }
    if (!has_attempts(table)) return;
    sql->add(", token");
    sql->add(after_each);
}

// One run of a statement of this table; `take` is called with each row.
template <typename Take>
void run(const SealedTable& table, const Sql& sql, int count, const Oid* types, Datum* values,
         const char* nulls, pg::Access access, Take take) {
    pg::Statement statement = {sql.text, count, types, access, nullptr};
    pg::AsOwner frame = pg::begin_as_owner(table.ours);
    std::uint64_t rows = has_attempts(table) ? pg::run_write(&statement, values, nulls)
                                             : pg::run_read(&statement, values, nulls);
    pg::take_rows(frame, rows, [&](const pg::FoundRow& row) { take(rows, row); });
    pg::drop_plan(&statement);
    pg::end_as_owner(frame);
}

Record named_record(const pg::FoundRow& row) {
    Identity id{};
    for (int i = 0; i < kKeyColumns; i++) id.*kPrimaryKey[i] = row.text_at(i + 1);
    Record record{};
    record.id = make_identity(id.scope, id.principal, id.key);
    return record;
}

Record sealed_attempt(const pg::FoundRow& row) {
    Record attempt = named_record(row);
    attempt.token = row.number(kKeyColumns + 1);
    attempt.sealed_by = row.text_at(kKeyColumns + 2);
    attempt.salt = row.text_at(kKeyColumns + 3);
    attempt.holder.sealed = row.text_at(kKeyColumns + 4);
    attempt.error.sealed = row.text_at(kKeyColumns + 5);
    attempt.reference.sealed = row.text_at(kKeyColumns + 6);
    return attempt;
}

// The id of a key, the place of a row, and a limit; a record's place has no token.
constexpr Oid kKeyIdAndPlace[] = {TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, INT8OID};

constexpr Oid kReplaced[] = {TEXTOID,  TEXTOID,  TEXTOID,  INT8OID, TEXTOID,
                             BYTEAOID, BYTEAOID, BYTEAOID, BYTEAOID};
constexpr int kReplacedValues = static_cast<int>(std::size(kReplaced));

}  // namespace

SealedTable* local_sealed_tables(int* count) {
    int records;
    int attempts;
    const RecordTable* with_records = local_tables(&records);
    const Oid* with_attempts = local_attempt_tables(&attempts);
    auto* found = static_cast<SealedTable*>(
        palloc(sizeof(SealedTable) * static_cast<Size>(records + attempts)));
    *count = 0;
    for (int i = 0; i < records; i++) found[(*count)++] = {kRecordTable, with_records[i].table};
    for (int i = 0; i < attempts; i++) found[(*count)++] = {kAttemptTable, with_attempts[i]};
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
        [&](std::uint64_t rows, const pg::FoundRow& row) {
            if (result == nullptr) result = static_cast<SealedBy*>(palloc(sizeof(SealedBy) * rows));
            result[(*count)++] = {row.text_at(1), row.number(2)};
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
        [&records](std::uint64_t, const pg::FoundRow& row) { records = row.number(1); });
    return records;
}

// A look for each batch goes on where the last one ended, by the index; it would otherwise pass the
// rows of all batches before it again.
int next_sealed_otherwise(const SealedTable& table, text* key_id, const Record& after, int limit,
                          Record* found) {
    bool attempts = has_attempts(table);
    int place = attempts ? kKeyColumns + 1 : kKeyColumns;
    Sql sql{};
    sql.add("SELECT ");
    add_place(&sql, table);
    if (attempts) sql.add(", sealed_by, salt, sealed_holder, sealed_error, sealed_reference");
    sql.add(" FROM ");
    add_table(&sql, table);
    sql.add(" WHERE ");
    sql.add(kSealedBy);
    sql.add(" OPERATOR(pg_catalog.<>) $1 AND ROW(");
    add_place(&sql, table);
    sql.add(") OPERATOR(pg_catalog.>) ROW(");
    sql.parameters(2, 1 + place);
    sql.add(") ORDER BY ");
    add_place(&sql, table, " USING OPERATOR(pg_catalog.<)");
    sql.add(" LIMIT ");
    sql.parameter(2 + place);
    if (attempts) sql.add(" FOR UPDATE SKIP LOCKED");
    Datum values[std::size(kKeyIdAndPlace)] = {PointerGetDatum(key_id)};
    for (int i = 0; i < kKeyColumns; i++) values[1 + i] = PointerGetDatum(after.id.*kPrimaryKey[i]);
    values[1 + kKeyColumns] = Int64GetDatum(after.token);
    values[1 + place] = Int64GetDatum(limit);
    int count = 0;
    run(table, sql, 2 + place, kKeyIdAndPlace, values, nullptr, pg::Access::ByIndex,
        [&](std::uint64_t, const pg::FoundRow& row) {
            found[count++] = attempts ? sealed_attempt(row) : named_record(row);
        });
    return count;
}

void replace_sealed(const SealedTable& table, const Record* attempts, int count) {
    Sql sql{};
    sql.add("UPDATE ");
    add_table(&sql, table);
    sql.add(
        " SET sealed_by = $5, salt = $6, sealed_holder = $7, sealed_error = $8,"
        " sealed_reference = $9"
        " WHERE key OPERATOR(pg_catalog.=) $1 AND scope OPERATOR(pg_catalog.=) $2"
        " AND principal OPERATOR(pg_catalog.=) $3 AND token OPERATOR(pg_catalog.=) $4");
    pg::Statement statement = {sql.text, kReplacedValues, kReplaced, pg::Access::ByIndex, nullptr};
    for (int i = 0; i < count; i++) {
        const Record& row = attempts[i];
        Datum values[] = {PointerGetDatum(row.id.key),          PointerGetDatum(row.id.scope),
                          PointerGetDatum(row.id.principal),    Int64GetDatum(row.token),
                          PointerGetDatum(row.sealed_by),       PointerGetDatum(row.salt),
                          PointerGetDatum(row.holder.sealed),   PointerGetDatum(row.error.sealed),
                          PointerGetDatum(row.reference.sealed)};
        char nulls[kReplacedValues];
        for (int k = 0; k < kReplacedValues; k++)
            nulls[k] = k != 3 && DatumGetPointer(values[k]) == nullptr ? 'n' : ' ';
        (void)pg::write_alone(table.ours, &statement, values, nulls);
    }
    if (statement.plan != nullptr) pg::drop_plan(&statement);
}

}  // namespace idem::store
