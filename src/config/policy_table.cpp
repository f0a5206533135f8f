#include "config/policy_table.hpp"

#include "pg/errors.hpp"

namespace idem::config {

namespace {

struct RowTypes {
    Oid types[kPolicyColumns];
};

constexpr RowTypes row_types() {
    RowTypes result{};
    for (int i = 0; i < kPolicyColumns; i++) result.types[i] = kPolicyColumnTypes[i].type;
    return result;
}

constexpr RowTypes kRow = row_types();

constexpr void add_columns(pg::SqlText* sql, int first) {
    for (int i = first; i < kPolicyColumns; i++) {
        if (i > first) sql->add(", ");
        sql->add(kPolicyColumnTypes[i].name);
    }
}

constexpr pg::SqlText read_sql() {
    pg::SqlText sql{};
    sql.add("SELECT ");
    add_columns(&sql, kPattern);
    sql.add(" FROM idempotency.policy");
    return sql;
}

// One statement, so that the row changes at once and no duplicate can stop it.
constexpr pg::SqlText write_sql() {
    pg::SqlText sql{};
    sql.add("INSERT INTO idempotency.policy (");
    add_columns(&sql, kPattern);
    sql.add(") VALUES (");
    sql.parameters(1, kPolicyColumns);
    sql.add(") ON CONFLICT (scope_pattern) DO UPDATE SET (");
    add_columns(&sql, kPattern + 1);
    sql.add(") = (");
    sql.parameters(2, kPolicyColumns);
    sql.add(")");
    return sql;
}

constexpr pg::SqlText kRead = read_sql();
constexpr pg::SqlText kWrite = write_sql();

pg::Statement read_all = {kRead.text, 0, nullptr, pg::Access::Whole, nullptr};
pg::Statement upsert = {kWrite.text, kPolicyColumns, kRow.types, pg::Access::ByIndex, nullptr};
pg::Statement delete_one = {
    "DELETE FROM idempotency.policy WHERE scope_pattern OPERATOR(pg_catalog.=) $1", 1, kRow.types,
    pg::Access::ByIndex, nullptr};

// Whoever owns the table may change it; what is another type is not read as if it were ours.
void check_types(TupleDesc desc) {
    for (int i = 0; i < kPolicyColumns; i++)
        if (TupleDescAttr(desc, i)->atttypid != kPolicyColumnTypes[i].type)
            pg::raise_policy_table(kPolicyColumnTypes[i].name);
}

void copy_row(HeapTuple tuple, TupleDesc desc, PolicyRow* row) {
    heap_deform_tuple(tuple, desc, row->values, row->nulls);
    for (PolicyColumn column : {kPattern, kDropped})
        if (row->nulls[column]) pg::raise_policy_table(kPolicyColumnTypes[column].name);
    for (int i = 0; i < kPolicyColumns; i++) {
        if (row->nulls[i]) continue;
        Form_pg_attribute attribute = TupleDescAttr(desc, i);
        row->values[i] = attribute->attlen == -1
                             ? PointerGetDatum(PG_DETOAST_DATUM_COPY(row->values[i]))
                             : datumCopy(row->values[i], attribute->attbyval, attribute->attlen);
    }
}

}  // namespace

PolicyRows read_policies(MemoryContext context) {
    pg::AsOwner scope = pg::begin_as_owner("policy");
    std::uint64_t count = pg::run_read(&read_all, nullptr, nullptr);
    check_types(SPI_tuptable->tupdesc);
    MemoryContext previous = MemoryContextSwitchTo(context);
    PolicyRows result{static_cast<PolicyRow*>(palloc(sizeof(PolicyRow) * (count + 1))), count};
    for (std::uint64_t i = 0; i < count; i++)
        copy_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, &result.rows[i]);
    MemoryContextSwitchTo(previous);
    pg::end_as_owner(scope);
    return result;
}

void write_row(PolicyRow* row) {
    char nulls[kPolicyColumns];
    for (int i = 0; i < kPolicyColumns; i++) nulls[i] = row->nulls[i] ? 'n' : ' ';
    (void)pg::write_alone("policy", &upsert, row->values, nulls);
}

void delete_row(const PolicyRow& row) {
    Datum values[] = {row.values[kPattern]};
    (void)pg::write_alone("policy", &delete_one, values, nullptr);
}

}  // namespace idem::config
