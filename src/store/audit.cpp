#include "store/audit.hpp"

#include "core/time.hpp"

#include "config/settings.hpp"
#include "pg/owner.hpp"

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
    "UPDATE idempotency.audit SET principal = NULL, key = NULL, key_digest = NULL, salt = NULL,"
    " erased = true"
    " WHERE principal = $1",
    1, kPrincipal, pg::Access::Whole, nullptr};

// The chain is the same with and without the module: see the install script.
constexpr Oid kUntilAndLimit[] = {TIMESTAMPTZOID, INT8OID};
pg::Statement remove_old = {"SELECT idempotency.remove_old_decisions($1, $2)", 2, kUntilAndLimit,
                            pg::Access::Whole, nullptr};
constexpr Oid kLimitAndFlag[] = {INT8OID, BOOLOID};
pg::Statement link_committed = {
    "SELECT linked, log_number, log_link FROM idempotency.link_decisions($1, $2)", 2, kLimitAndFlag,
    pg::Access::Whole, nullptr};
constexpr Oid kLink[] = {TEXTOID};
pg::Statement find_faults = {
    "SELECT number, rows, problem, decided_at, detail FROM idempotency.faults_of_audit($1)", 1,
    kLink, pg::Access::Whole, nullptr};

// The statements have many parts, which the server would compile for each call.
pg::AsOwner begin_with_chain() {
    pg::AsOwner frame = pg::begin_as_owner(kAuditTable);
    pg::set_locally("jit", "off");
    return frame;
}

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
    Datum values[] = {TimestampTzGetDatum(until), Int64GetDatum(limit)};
    pg::AsOwner frame = begin_with_chain();
    (void)pg::run_write(&remove_old, values, nullptr);
    std::int64_t rows = pg::first_row().number(1);
    pg::end_as_owner(frame);
    return rows;
}

bool link_decisions(std::int64_t limit) {
    Datum values[] = {Int64GetDatum(limit), BoolGetDatum(config::log_audit)};
    pg::AsOwner frame = begin_with_chain();
    (void)pg::run_write(&link_committed, values, nullptr);
    pg::FoundRow row = pg::first_row();
    bool is_news = !row.is_null(2);
    bool linked = row.number(1) > 0;
    // A later transaction logs the link, which a crash must not take back.
    if (linked) ForceSyncCommit();
    if (is_news)
        ereport(LOG, (errmsg("idempotency: %s",
                             psprintf("audit=%lld:%s", static_cast<long long>(row.number(2)),
                                      text_to_cstring(row.text_at(3)))),
                      errhidestmt(true), errhidecontext(true)));
    pg::end_as_owner(frame);
    return linked || is_news;
}

Fault* faults_of_audit(const text* link, int* count) {
    char nulls[] = {link == nullptr ? 'n' : ' '};
    Datum values[] = {PointerGetDatum(link)};
    pg::AsOwner frame = begin_with_chain();
    std::uint64_t rows = pg::run_read(&find_faults, values, nulls);
    *count = static_cast<int>(rows);
    Fault* faults = pg::made_of_rows(frame, rows, [](const pg::FoundRow& row) {
        Fault fault{};
        for (int i = 0; i < kFaultColumns; i++) fault.nulls[i] = row.is_null(i + 1);
        for (int i : {0, 1, 3}) fault.values[i] = fault.nulls[i] ? 0 : row.value(i + 1);
        for (int i : {2, 4}) fault.values[i] = PointerGetDatum(row.text_at(i + 1));
        return fault;
    });
    pg::end_as_owner(frame);
    return faults;
}

std::int64_t make_audit_anonymous(const text* principal) {
    Datum values[] = {PointerGetDatum(principal)};
    return static_cast<std::int64_t>(
        pg::write_alone(kAuditTable, &make_anonymous, values, nullptr));
}

}  // namespace idem::store
