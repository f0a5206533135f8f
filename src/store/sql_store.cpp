// The reference. Each access is one statement about one row, named by the whole primary key. So it
// works with any kind of table, with triggers, partitions and distribution included.
//
// The triggers of foreign keys work like this (ri_PerformCheck): plans are prepared once and kept,
// and SPI_execute_snapshot runs them as the owner of the table with the latest snapshot, whatever
// the transaction's own is. pg/owner.cpp is that part.
//
// Invariants:
// - Other sessions do not see an uncommitted row. A session that inserts the same key waits for it
//   (ON CONFLICT DO NOTHING), so the key's lock is kept until the transaction ends.
// - A row is replaced or removed only if it is the version that the caller has seen. The statement
//   waits for a transaction that is changing it. Then READ COMMITTED looks at the newest version
//   (EvalPlanQual), and the higher levels raise 40001.
// - Code of users may run in each write, but never later than that: see reserve().

#include "pg/owner.hpp"
#include "store/deferred.hpp"
#include "store/implementation.hpp"

namespace idem::store {

namespace {

// The columns of a Version in a statement, in this order.
constexpr ColumnType kVersion[] = {column_of(&Record::token), column_of(&Record::status),
                                   column_of(&Record::lease_until)};
constexpr int kVersionValues = std::size(kVersion);

// The types of the first columns of a row and of its expected version.
template <int columns>
constexpr auto and_version() {
    std::array<Oid, columns + kVersionValues> types{};
    for (int i = 0; i < columns; i++) types[i] = kColumnTypes[i].type;
    for (int i = 0; i < kVersionValues; i++) types[columns + i] = kVersion[i].type;
    return types;
}

constexpr auto kRowAndVersion = and_version<kColumnCount>();
constexpr auto kIdentityAndVersion = and_version<kKeyColumns>();

// The text of a statement, built by the compiler from a table of columns.
struct Sql {
    char text[2048];
    std::size_t length;

    constexpr void add(const char* piece) {
        while (*piece != '\0') text[length++] = *piece++;
    }
    // One of our tables, with its schema.
    constexpr void table(const char* name) {
        add(pg::kExtension);
        add(".");
        add(name);
    }
    // A parameter: "$27".
    constexpr void parameter(int number) {
        add("$");
        if (number >= 10) text[length++] = static_cast<char>('0' + number / 10);
        text[length++] = static_cast<char>('0' + number % 10);
    }
    // "$3, $4, $5"
    constexpr void parameters(int first, int last) {
        for (int i = first; i <= last; i++) {
            if (i > first) add(", ");
            parameter(i);
        }
    }
};

// The names of the first columns.
constexpr void add_names(Sql* sql, int columns) {
    for (int i = 0; i < columns; i++) {
        if (i > 0) sql->add(", ");
        sql->add(kColumnTypes[i].name);
    }
}

constexpr void add_equal(Sql* sql, const char* name, int parameter) {
    sql->add(name);
    sql->add(" OPERATOR(pg_catalog.=) ");
    sql->parameter(parameter);
}

// The row of an identity, its first columns: by the whole primary key, so that a distributed table
// can route the statement.
constexpr void add_this_row(Sql* sql) {
    for (int i = 0; i < kKeyColumns; i++) {
        sql->add(i == 0 ? " WHERE " : " AND ");
        add_equal(sql, kColumnTypes[i].name, i + 1);
    }
}

// `first` is the number of the parameter with the token. The status and the end of the lease
// follow; null means any lease.
constexpr void add_this_version(Sql* sql, int first) {
    for (int i = 0; i < kVersionValues; i++) {
        sql->add(" AND ");
        if (kVersion[i].may_be_null) {
            sql->add("(");
            sql->parameter(first + i);
            sql->add(" IS NULL OR ");
        }
        add_equal(sql, kVersion[i].name, first + i);
        if (kVersion[i].may_be_null) sql->add(")");
    }
}

constexpr Sql find_sql() {
    Sql sql{};
    sql.add("SELECT ");
    add_names(&sql, kColumnCount);
    sql.add(" FROM ");
    sql.table(kRecordTable);
    add_this_row(&sql);
    return sql;
}

constexpr Sql insert_sql() {
    Sql sql{};
    sql.add("INSERT INTO ");
    sql.table(kRecordTable);
    sql.add(" (");
    add_names(&sql, kColumnCount);
    sql.add(") VALUES (");
    sql.parameters(1, kColumnCount);
    sql.add(") ON CONFLICT (");
    add_names(&sql, kKeyColumns);
    sql.add(") DO NOTHING");
    return sql;
}

constexpr Sql update_sql() {
    Sql sql{};
    sql.add("UPDATE ");
    sql.table(kRecordTable);
    sql.add(" SET ");
    for (int i = kKeyColumns; i < kColumnCount; i++) {
        if (i > kKeyColumns) sql.add(", ");
        sql.add(kColumnTypes[i].name);
        sql.add(" = ");
        sql.parameter(i + 1);
    }
    add_this_row(&sql);
    add_this_version(&sql, kColumnCount + 1);
    return sql;
}

constexpr Sql delete_sql() {
    Sql sql{};
    sql.add("DELETE FROM ");
    sql.table(kRecordTable);
    add_this_row(&sql);
    add_this_version(&sql, kKeyColumns + 1);
    return sql;
}

constexpr Sql kFind = find_sql();
constexpr Sql kInsert = insert_sql();
constexpr Sql kUpdate = update_sql();
constexpr Sql kDelete = delete_sql();

constexpr pg::Statement by_index(const Sql& sql, int nargs, const Oid* types) {
    return {sql.text, nargs, types, pg::Access::ByIndex, nullptr};
}

pg::Statement find_row = by_index(kFind, kKeyColumns, kIdentityAndVersion.data());
pg::Statement insert_row = by_index(kInsert, kColumnCount, kRowAndVersion.data());
pg::Statement update_row = by_index(kUpdate, kColumnCount + kVersionValues, kRowAndVersion.data());
pg::Statement delete_row =
    by_index(kDelete, kKeyColumns + kVersionValues, kIdentityAndVersion.data());

// In the order of the columns.
void identity_values(const Identity& id, Datum* values) {
    static_assert(attribute_of(&Identity::scope) == 1 && attribute_of(&Identity::principal) == 2 &&
                  attribute_of(&Identity::key) == 3);
    values[0] = PointerGetDatum(id.scope);
    values[1] = PointerGetDatum(id.principal);
    values[2] = PointerGetDatum(id.key);
}

// The row as parameters of a statement, and its nulls as SPI wants them: ' ' for a value, 'n' for
// null.
void row_values(const Record& record, Datum* values, char* nulls) {
    bool is_null[kColumnCount];
    to_columns(record, values, is_null);
    for (int i = 0; i < kColumnCount; i++) nulls[i] = is_null[i] ? 'n' : ' ';
}

Look find(const RecordTable&, const Identity& id, Record* record) {
    Datum values[kColumnCount];
    bool nulls[kColumnCount];
    identity_values(id, values);
    pg::AsOwner frame = pg::begin_as_owner(kRecordTable);
    bool found = pg::run_read(&find_row, values, nullptr) > 0;
    if (found) {
        heap_deform_tuple(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, values, nulls);
        record->id = id;
        MemoryContext spi_context = MemoryContextSwitchTo(frame.caller_context);
        from_columns(values, nulls, record);
        MemoryContextSwitchTo(spi_context);
    }
    pg::end_as_owner(frame);
    return {found, InvalidTransactionId, false};
}

// Each write is complete when it returns, except for a deferred trigger, which would run at commit,
// as the user who commits. Also an error, the server's own, if a publication could not pass an
// update on: the table lacks the replica identity, or its filter names other columns. Each
// partition is checked when one of its rows changes.
void reserve(const RecordTable& record_table) {
    Relation table = table_open(record_table.table, AccessShareLock);
    refuse_deferred_trigger(table);
    if (table->rd_rel->relkind == RELKIND_RELATION) CheckCmdReplicaIdentity(table, CMD_UPDATE);
    table_close(table, NoLock);
}

// A write touched no row, although the row is the expected one.
void check_not_swallowed(const RecordTable& table, const Identity& id, const Version* expected) {
    Record record{};
    bool found = find(table, id, &record).found;
    bool as_expected =
        expected == nullptr ? !found : found && is_version(version_of(record), *expected);
    if (as_expected)
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("the record of this key could not be written"),
                        errdetail("A trigger or rule on idempotency.record dropped the row."),
                        errhint("Drop the trigger or rule, or let it keep every row.")));
}

bool insert(const RecordTable& table, const Record& record) {
    Datum values[kColumnCount];
    char nulls[kColumnCount];
    row_values(record, values, nulls);
    if (pg::write_alone(kRecordTable, &insert_row, values, nulls) > 0) return true;
    check_not_swallowed(table, record.id, nullptr);
    return false;
}

bool insert_all(const RecordTable& table, const Record* records, int count) {
    for (int i = 0; i < count; i++)
        if (!insert(table, records[i])) return false;
    return true;
}

void version_values(const Version& version, Datum* values, char* nulls) {
    values[0] = Int64GetDatum(version.token);
    values[1] = CharGetDatum(static_cast<char>(version.status));
    values[2] = TimestampTzGetDatum(version.lease_until);
    nulls[0] = nulls[1] = ' ';
    nulls[2] = version.lease_until == pg::kNoTime ? 'n' : ' ';
}

bool update(const RecordTable& table, const Record& record, const Version& expected) {
    Datum values[kColumnCount + kVersionValues];
    char nulls[kColumnCount + kVersionValues];
    row_values(record, values, nulls);
    version_values(expected, values + kColumnCount, nulls + kColumnCount);
    if (pg::write_alone(kRecordTable, &update_row, values, nulls) > 0) return true;
    check_not_swallowed(table, record.id, &expected);
    return false;
}

bool remove(const RecordTable& table, const Identity& id, const Version& expected) {
    Datum values[kKeyColumns + kVersionValues];
    char nulls[] = {' ', ' ', ' ', ' ', ' ', ' '};
    static_assert(sizeof(nulls) == kKeyColumns + kVersionValues);
    identity_values(id, values);
    version_values(expected, values + kKeyColumns, nulls + kKeyColumns);
    if (pg::write_alone(kRecordTable, &delete_row, values, nulls) > 0) return true;
    check_not_swallowed(table, id, &expected);
    return false;
}

}  // namespace

const Store sql_store = {
    find,
    reserve,
    insert,
    insert_all,
    update,
    remove,
    /* bypasses_executor */ false,
};

}  // namespace idem::store
