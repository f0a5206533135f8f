// idem_execute: runs an SQL function exactly once, as the caller, and keeps what it returns.

#include "core/sqlstate.hpp"

#include "api/arguments.hpp"
#include "api/claim_result.hpp"
#include "api/operation.hpp"
#include "claim/begin.hpp"
#include "claim/operator.hpp"
#include "config/policy.hpp"
#include "pg/boundary.hpp"
#include "pg/errors.hpp"
#include "pg/subtransaction.hpp"
#include "worker/presence.hpp"

namespace idem::api {

namespace {

// Runs the operation in a subtransaction. nullptr if it succeeded, else its error, which is over.
ErrorData* run_guarded(const Operation& operation, Jsonb* request, claim::Response* response) {
    ErrorData* volatile error = nullptr;
    pg::Subtransaction outer = pg::begin_subtransaction();
    PG_TRY();
    {
        run_operation(operation, request, response);
        pg::commit_subtransaction(outer);
    }
    PG_CATCH();
    { error = pg::abort_subtransaction(outer); }
    PG_END_TRY();
    return error;
}

bool is_final(const ErrorData& error, const text* scope) {
    const char* sqlstate = unpack_sql_state(error.sqlerrcode);
    config::ScopePolicy policy = config::policy_for(pg::bytes_of(scope));
    if (policy.final_errors == nullptr) return core::is_fault_of_request(sqlstate);
    pg::TextList entries = pg::text_list(policy.final_errors, "final_errors");
    return core::is_listed(sqlstate, entries.items, entries.count);
}

// Why the operation failed, if that is final. Else the error again: the transaction rolls back, and
// the retry runs.
text* failure_of(ErrorData* error, const text* scope) {
    if (error == nullptr) return nullptr;
    if (!is_final(*error, scope)) ReThrowError(error);
    text* message =
        cstring_to_text(psprintf("%s: %s", unpack_sql_state(error->sqlerrcode), error->message));
    FreeErrorData(error);
    return message;
}

// Why the operation failed; nullptr if it succeeded. Meanwhile nobody ends the claim. An error that
// goes on takes claim and mark along.
text* run_under_claim(const claim::Answer& answer, const Operation& operation, Jsonb* request,
                      claim::Response* response) {
    const store::Identity& id = answer.record.id;
    claim::open_claim(id)->operated = true;
    text* failure = failure_of(run_guarded(operation, request, response), id.scope);
    claim::open_claim(id)->operated = false;
    return failure;
}

void record_result(const claim::Answer& answer, text* failure, const claim::Response& response) {
    claim::ClaimRef ref{"idem_execute()", answer.record.id, answer.record.token};
    if (failure == nullptr)
        (void)claim::complete(ref, response, std::nullopt);
    else
        (void)claim::fail(ref, claim::Response{}, claim::Failure{failure, false, std::nullopt});
}

claim::Question question_of(FunctionCallInfo fcinfo, const Operation& operation) {
    claim::Question question{};
    question.function = "idem_execute()";
    question.id = identity_or_generated_key(fcinfo, 0, 3, 4);
    question.request = jsonb_or_null(fcinfo, 2);
    question.fingerprint = fingerprint_or_null(fcinfo, 5);
    question.operation = operation.name;
    question.ttl = duration_or_none(fcinfo, 6, "ttl", core::kTtlRange);
    question.wait = duration_or_none(fcinfo, 7, "wait", core::kWaitRange);
    question.first_sent = moment_or_none(fcinfo, 8, "first_sent");
    if (!PG_ARGISNULL(9)) question.holder = required_name(fcinfo, 9, "holder");
    return question;
}

// idem_execute(key, operation, request, scope, principal, fingerprint, ttl, wait, first_sent,
// holder)
Datum execute(FunctionCallInfo fcinfo) {
    worker::ensure_launcher();
    Operation operation = operation_argument(fcinfo, 1);
    claim::Question question = question_of(fcinfo, operation);
    if (operation.strict && question.request == nullptr) pg::raise_strict_operation();
    claim::Answer answer = claim::begin(question);
    if (answer.outcome != core::Outcome::Execute) return claim_datum(fcinfo, answer);
    claim::Response response{};
    text* failure = run_under_claim(answer, operation, question.request, &response);
    record_result(answer, failure, response);
    claim::Answer recorded;
    if (claim::look(answer.record.id, &recorded)) answer.record = recorded.record;
    return claim_datum(fcinfo, answer);
}

}  // namespace

}  // namespace idem::api

IDEM_FUNCTION(idem_execute, idem::api::execute);
