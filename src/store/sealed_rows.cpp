#include "store/sealed_rows.hpp"

#include "pg/owner.hpp"
#include "store/record_table.hpp"

namespace idem::store {

namespace {

// One run of a statement on this table; `take` is called with each row.
template <typename Take>
void run(const SealedTable& table, const char* sql, int count, const Oid* types, Datum* values,
         const char* nulls, pg::Access access, Take take) {
    pg::Statement statement = {sql, count, types, access, nullptr};
    pg::AsOwner frame = pg::begin_as_owner(table.ours);
    std::uint64_t rows = has_attempts(table) ? pg::run_write(&statement, values, nulls)
                                             : pg::run_read(&statement, values, nulls);
    pg::take_rows(frame, rows, [&](const pg::FoundRow& row) { take(rows, row); });
    pg::drop_plan(&statement);
    pg::end_as_owner(frame);
}

// The name of a record; of an attempt also the token, and all that is sealed.
Record sealed_row(const pg::FoundRow& row, bool is_attempt) {
    Identity id{};
    for (int i = 0; i < kKeyColumns; i++) id.*kPrimaryKey[i] = row.text_at(i + 1);
    Record record{};
    record.id = make_identity(id.scope, id.principal, id.key);
    if (!is_attempt) return record;
    record.token = row.number(kKeyColumns + 1);
    record.sealed_by = row.text_at(kKeyColumns + 2);
    record.salt = row.text_at(kKeyColumns + 3);
    record.holder.sealed = row.text_at(kKeyColumns + 4);
    record.error.sealed = row.text_at(kKeyColumns + 5);
    record.reference.sealed = row.text_at(kKeyColumns + 6);
    return record;
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
    const char* sql = psprintf(
        "SELECT sealed_by, count(*) FROM %s WHERE sealed_by IS NOT NULL GROUP BY sealed_by",
        pg::qualified_name(table.table));
    SealedBy* result = nullptr;
    *count = 0;
    run(table, sql, 0, nullptr, nullptr, nullptr, pg::Access::ByIndex,
        [&](std::uint64_t rows, const pg::FoundRow& row) {
            if (result == nullptr) result = static_cast<SealedBy*>(palloc(sizeof(SealedBy) * rows));
            result[(*count)++] = {row.text_at(1), row.number(2)};
        });
    return result;
}

std::int64_t sealed_otherwise(const SealedTable& table, text* key_id) {
    const char* sql =
        psprintf("SELECT count(*) FROM %s WHERE sealed_by <> $1", pg::qualified_name(table.table));
    Datum value = PointerGetDatum(key_id);
    std::int64_t records = 0;
    run(table, sql, 1, kKeyIdAndPlace, &value, nullptr, pg::Access::Whole,
        [&records](std::uint64_t, const pg::FoundRow& row) { records = row.number(1); });
    return records;
}

// Each look continues by the primary key where the last batch ended. Otherwise it would read the
// rows of all earlier batches again. So the condition must not imply that of the index of sealed
// rows, which the planner might read and sort for each batch.
int next_sealed_otherwise(const SealedTable& table, text* key_id, const Record& after, int limit,
                          bool lock, Record* found) {
    bool attempts = has_attempts(table);
    int place = attempts ? kKeyColumns + 1 : kKeyColumns;
    const char* of_records = R"(
        SELECT key, scope, principal FROM %s
        WHERE coalesce(sealed_by, $1) <> $1 AND ROW(key, scope, principal) > ROW($2, $3, $4)
        ORDER BY key, scope, principal LIMIT $5)";
    const char* of_attempts = R"(
        SELECT key, scope, principal, token,
            sealed_by, salt, sealed_holder, sealed_error, sealed_reference
        FROM %s
        WHERE coalesce(sealed_by, $1) <> $1 AND ROW(key, scope, principal, token) > ROW($2, $3, $4, $5)
        ORDER BY key, scope, principal, token LIMIT $6 %s)";
    const char* name = pg::qualified_name(table.table);
    const char* how = lock ? "FOR UPDATE SKIP LOCKED" : "";
    const char* sql = attempts ? psprintf(of_attempts, name, how) : psprintf(of_records, name);
    Datum values[std::size(kKeyIdAndPlace)] = {PointerGetDatum(key_id)};
    for (int i = 0; i < kKeyColumns; i++) values[1 + i] = PointerGetDatum(after.id.*kPrimaryKey[i]);
    values[1 + kKeyColumns] = Int64GetDatum(after.token);
    values[1 + place] = Int64GetDatum(limit);
    int count = 0;
    run(table, sql, 2 + place, kKeyIdAndPlace, values, nullptr, pg::Access::ByIndex,
        [&](std::uint64_t, const pg::FoundRow& row) {
            found[count++] = sealed_row(row, attempts);
        });
    return count;
}

void replace_sealed(const SealedTable& table, const Record* attempts, int count) {
    const char* sql = psprintf(R"(
        UPDATE %s
        SET sealed_by = $5, salt = $6, sealed_holder = $7, sealed_error = $8, sealed_reference = $9
        WHERE key = $1 AND scope = $2 AND principal = $3 AND token = $4)",
                               pg::qualified_name(table.table));
    pg::Statement statement = {sql, kReplacedValues, kReplaced, pg::Access::ByIndex, nullptr};
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
