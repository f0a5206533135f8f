// The history of a key for an operator. It shows sealed values, where the view idempotency.attempts
// shows null.

#include "api/arguments.hpp"
#include "claim/sealing.hpp"
#include "config/policy.hpp"
#include "pg/boundary.hpp"
#include "store/attempt.hpp"

namespace idem::operate {

using namespace api;

namespace {

constexpr int kAttemptColumns = 11;

// An error (ID503, ID500) if a sealed value of the row does not open.
void put_attempt(ReturnSetInfo* result, const store::KeptAttempt& attempt) {
    const store::Record& record = attempt.record;
    text* holder = claim::opened(record, &store::Record::holder);
    text* error = claim::opened(record, &store::Record::error);
    text* reference = claim::opened(record, &store::Record::reference);
    Datum values[] = {Int32GetDatum(record.attempt),
                      PointerGetDatum(holder),
                      TimestampTzGetDatum(record.claimed_at),
                      TimestampTzGetDatum(record.finished_at),
                      PointerGetDatum(attempt.how),
                      Int32GetDatum(record.status_code.value_or(0)),
                      PointerGetDatum(error),
                      PointerGetDatum(reference),
                      PointerGetDatum(record.resolved_by),
                      TimestampTzGetDatum(record.retained_until),
                      PointerGetDatum(record.sealed_by)};
    bool nulls[] = {false,
                    holder == nullptr,
                    false,
                    false,
                    false,
                    !record.status_code.has_value(),
                    error == nullptr,
                    reference == nullptr,
                    record.resolved_by == nullptr,
                    false,
                    record.sealed_by == nullptr};
    static_assert(std::size(nulls) == kAttemptColumns);
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

// idem_attempts(key, scope, principal)
Datum attempts(FunctionCallInfo fcinfo) {
    InitMaterializedSRF(fcinfo, 0);
    store::Identity id = identity(fcinfo, 0, 1, 2);
    (void)config::policy_for(pg::bytes_of(id.scope));
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    if (result->setDesc->natts != kAttemptColumns)
        elog(ERROR, "idempotency: idem_attempts is not the function this library knows");
    int count;
    const store::KeptAttempt* kept = store::attempts_of(id, &count);
    for (int i = 0; i < count; i++) put_attempt(result, kept[i]);
    return 0;
}

}  // namespace

}  // namespace idem::operate

IDEM_FUNCTION(idem_operator_attempts, idem::operate::attempts);
