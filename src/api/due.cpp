// idem_claim_due, and its result type idem_due.

#include "claim/due.hpp"
#include "api/arguments.hpp"
#include "api/types.hpp"
#include "claim/sealing.hpp"
#include "pg/boundary.hpp"
#include "pg/installed.hpp"
#include "store/due.hpp"
#include "store/record_table.hpp"
#include "worker/presence.hpp"

namespace idem::api {

namespace {

// A claim keeps the lock of its key until its transaction ends, and the lock table is limited.
constexpr int kMostClaims = 1000;

void put_claim(const store::Record& record, void* result) {
    FieldRow<DueField> row;
    memset(row.nulls, true, sizeof(row.nulls));
    row.pointer(DueField::Key, record.id.key);
    row.pointer(DueField::Scope, record.id.scope);
    row.pointer(DueField::Principal, record.id.principal);
    row.value(DueField::Token, Int64GetDatum(record.token));
    row.value(DueField::Attempt, Int32GetDatum(record.attempt));
    row.pointer(DueField::Operation, record.operation);
    row.pointer(DueField::Method, claim::opened(record, &store::Record::method));
    row.pointer(DueField::Path, claim::opened(record, &store::Record::path));
    row.pointer(DueField::Request, claim::opened(record, &store::Record::request));
    row.pointer(DueField::RecoveryPoint, claim::opened(record, &store::Record::recovery_point));
    row.pointer(DueField::State, claim::opened(record, &store::Record::state));
    row.pointer(DueField::Error, claim::opened(record, &store::Record::error));
    row.time(DueField::CreatedAt, record.created_at);
    row.time(DueField::LeaseUntil, record.lease_until);
    auto* rows = static_cast<ReturnSetInfo*>(result);
    tuplestore_putvalues(rows->setResult, rows->setDesc, row.values, row.nulls);
}

// idem_claim_due(scope, max_claims, lease, holder)
Datum claim_due(FunctionCallInfo fcinfo) {
    worker::ensure_launcher();
    claim::DueQuestion asked{};
    asked.pattern = label(fcinfo, 0, "scope");
    std::int64_t most = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1);
    if (PG_ARGISNULL(1)) raise_null("max_claims");
    if (most < 1 || most > kMostClaims) raise_number("max_claims", most, 1, kMostClaims);
    asked.most = static_cast<int>(most);
    asked.lease = span_or_none(fcinfo, 2, "lease", core::kLeaseRange);
    if (!PG_ARGISNULL(3)) asked.holder = required_name(fcinfo, 3, "holder");
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    pg::check_row_type(result->setDesc, static_cast<int>(DueField::Count));
    claim::claim_due(asked, put_claim, result);
    return 0;
}

// idempotency.due_by_scope(): scope, records, oldest. A row per scope and table of this node.
Datum due_by_scope(FunctionCallInfo fcinfo) {
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    TimestampTz now = GetCurrentTimestamp();
    int tables;
    const store::RecordTable* table = store::local_tables(&tables);
    for (int i = 0; i < tables; i++) {
        int count;
        const claim::DueOfScope* due = claim::due_by_scope(table[i].table, now, &count);
        for (int k = 0; k < count; k++) {
            Datum values[] = {PointerGetDatum(due[k].scope), Int64GetDatum(due[k].records),
                              TimestampTzGetDatum(due[k].oldest)};
            bool nulls[] = {false, false, false};
            tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
        }
    }
    return 0;
}

}  // namespace

}  // namespace idem::api

IDEM_FUNCTION(idem_worker_claim_due, idem::api::claim_due);
IDEM_FUNCTION(idem_due_by_scope, idem::api::due_by_scope);
