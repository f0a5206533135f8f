#include "store/audit.hpp"

#include "core/time.hpp"

#include "config/settings.hpp"
#include "pg/owner.hpp"
#include "store/sweep.hpp"

namespace idem::store {

namespace {

constexpr Oid kRowTypes[] = {TIMESTAMPTZOID, TEXTOID,  TEXTOID, TEXTOID, TEXTOID, BOOLOID, TEXTOID,
                             JSONBOID,       JSONBOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, BOOLOID};
constexpr int kRowValues = static_cast<int>(std::size(kRowTypes));

// $5 is the key, and $6 whether it may be shown. An auditor can compute the digest too.
pg::Statement insert_row = {
    "INSERT INTO idempotency.audit (decided_at, action, scope, principal, key, key_digest, role,"
    " before, after, reason, decided_by, acting_as, application_name, client_addr, erased)"
    " VALUES ($1, $2, $3, $4, CASE WHEN $6 THEN $5 END,"
    " CASE WHEN NOT $6 THEN sha256(convert_to($5, getdatabaseencoding())) END,"
    " $7, $8, $9, $10, $11, $12, $13, inet_client_addr(), $14)",
    kRowValues, kRowTypes, pg::Access::Whole, nullptr};

constexpr Oid kPrincipal[] = {TEXTOID};
pg::Statement make_anonymous = {
    "UPDATE idempotency.audit SET principal = NULL, key = NULL, key_digest = NULL, erased = true"
    " WHERE principal = $1",
    1, kPrincipal, pg::Access::Whole, nullptr};

// The values of a row, in the order of the parameters.
struct Values {
    Datum values[kRowValues];
    char nulls[kRowValues];
    int count;
};

void add(Values* row, Datum value) {
    row->nulls[row->count] = ' ';
    row->values[row->count++] = value;
}

void add(Values* row, const void* value) {
    row->nulls[row->count] = value == nullptr ? 'n' : ' ';
    row->values[row->count++] = PointerGetDatum(value);
}

}  // namespace

void add_audit_row(const AuditRow& row) {
    auto text_of = [](const char* name) -> const text* {
        return name == nullptr ? nullptr : cstring_to_text(name);
    };
    Values values{};
    add(&values, TimestampTzGetDatum(GetCurrentTimestamp()));
    add(&values, row.action);
    add(&values, row.scope);
    add(&values, row.principal);
    add(&values, row.key);
    add(&values, BoolGetDatum(config::log_keys));
    add(&values, text_of(row.role));
    add(&values, row.before);
    add(&values, row.after);
    add(&values, row.reason);
    add(&values, text_of(row.decided_by));
    add(&values, text_of(row.acting_as));
    add(&values, text_of(application_name));
    add(&values, BoolGetDatum(row.erased));
    if (pg::write_alone(kAuditTable, &insert_row, values.values, values.nulls) != 1)
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("the decision could not be written to idempotency.audit"),
                        errdetail("A trigger or rule on the table dropped the row."),
                        errhint("Drop the trigger or rule, or let it keep every row.")));
}

std::int64_t sweep_audit(std::int64_t limit) {
    if (config::audit_retention == 0) return 0;
    TimestampTz until = GetCurrentTimestamp() - config::audit_retention * core::kSecond;
    return sweep_aged(kAuditTable, pg::table_oid(kAuditTable), "decided_at", until, limit);
}

std::int64_t make_audit_anonymous(const text* principal) {
    Datum values[] = {PointerGetDatum(principal)};
    return static_cast<std::int64_t>(
        pg::write_alone(kAuditTable, &make_anonymous, values, nullptr));
}

}  // namespace idem::store
