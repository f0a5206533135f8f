#include "config/policy_table.hpp"

namespace idem::config {

namespace {

#define POLICY_COLUMNS                                                                     \
    "scope_pattern, ttl, retention, lease, wait, max_attempts, retry_base, retry_cap,"     \
    " key_required, fingerprint_required, store_request, on_lease_expiry, max_body_bytes," \
    " on_large_body, exclude_fields, drop_headers, allowed_role"

constexpr Oid kTypes[kPolicyColumns] = {
    TEXTOID,     INTERVALOID, INTERVALOID,  INTERVALOID,  INTERVALOID, INT4OID,
    INTERVALOID, INTERVALOID, BOOLOID,      BOOLOID,      BOOLOID,     TEXTOID,
    INT4OID,     TEXTOID,     TEXTARRAYOID, TEXTARRAYOID, NAMEOID};

pg::Statement read_all = {"SELECT " POLICY_COLUMNS " FROM idempotency.policy", 0, nullptr,
                          pg::Access::Whole, nullptr};

// One statement each, so that the row changes at once and no duplicate can stop it.
pg::Statement upsert = {
    "INSERT INTO idempotency.policy (" POLICY_COLUMNS
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8,"
    " $9, $10, $11, $12, $13, $14, $15, $16, $17) ON CONFLICT (scope_pattern) DO UPDATE SET"
    " (ttl, retention, lease, wait, max_attempts, retry_base, retry_cap, key_required,"
    " fingerprint_required, store_request, on_lease_expiry, max_body_bytes, on_large_body,"
    " exclude_fields, drop_headers, allowed_role) = ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11,"
    " $12, $13, $14, $15, $16, $17)",
    kPolicyColumns, kTypes, pg::Access::ByIndex, nullptr};

pg::Statement delete_one = {
    "DELETE FROM idempotency.policy WHERE scope_pattern OPERATOR(pg_catalog.=) $1", 1, kTypes,
    pg::Access::ByIndex, nullptr};

void copy_row(HeapTuple tuple, TupleDesc desc, PolicyRow* row) {
    heap_deform_tuple(tuple, desc, row->values, row->nulls);
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
    pg::Internal scope = pg::begin_internal("policy");
    std::uint64_t count = pg::run_read(&read_all, nullptr, nullptr);
    MemoryContext previous = MemoryContextSwitchTo(context);
    PolicyRows result{static_cast<PolicyRow*>(palloc(sizeof(PolicyRow) * (count + 1))), count};
    for (std::uint64_t i = 0; i < count; i++)
        copy_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, &result.rows[i]);
    MemoryContextSwitchTo(previous);
    pg::end_internal(scope);
    return result;
}

void write_policy(Datum* values, const char* nulls) {
    (void)pg::write_alone("policy", &upsert, values, nulls);
}

bool drop_policy(text* pattern) {
    Datum values[] = {PointerGetDatum(pattern)};
    return pg::write_alone("policy", &delete_one, values, nullptr) > 0;
}

}  // namespace idem::config
