// An operation runs in a subtransaction, so that a final error leaves nothing of it but the record
// that says so, as a PL/pgSQL block with an EXCEPTION clause would (exec_stmt_block).

#include "claim/execute.hpp"

#include "core/sqlstate.hpp"

#include "claim/begin.hpp"
#include "claim/holder.hpp"
#include "claim/state.hpp"
#include "config/error_statuses.hpp"
#include "config/policy.hpp"
#include "pg/boundary.hpp"

namespace idem::claim {

namespace {

// What became of an operation. No error: it has returned.
struct End {
    text* error;
    std::optional<std::int32_t> status_code;  // with which it refuses, if the policy says so
};

// nullptr if it returned, else its error, which is over.
ErrorData* run_guarded(const Operation& operation, Jsonb* request, pg::UserCode* code) {
    ErrorData* volatile error = nullptr;
    pg::Subtransaction outer = pg::begin_subtransaction();
    PG_TRY();
    {
        pg::enter_user_code(code);
        operation.run(operation.argument, request);
        pg::leave_user_code(*code);
        pg::commit_subtransaction(outer);
    }
    PG_CATCH();
    { error = pg::abort_subtransaction(outer); }
    PG_END_TRY();
    return error;
}

bool is_final(const char* sqlstate, const config::ScopePolicy& policy) {
    if (config::status_of_error(policy.error_statuses, sqlstate)) return true;
    if (policy.final_errors == nullptr) return core::is_fault_of_request(sqlstate);
    pg::TextList entries = pg::text_list(policy.final_errors, "final_errors");
    return core::is_listed(sqlstate, entries.items, entries.count);
}

// Why the operation failed, if that is final. Else the error again: the transaction rolls back, and
// the retry runs. An error of the extension says nothing about the request.
End failure_of(ErrorData* error, const pg::UserCode& code, const text* scope) {
    const char* sqlstate = unpack_sql_state(error->sqlerrcode);
    config::ScopePolicy policy = config::policy_for(pg::bytes_of(scope));
    if (pg::is_our_error(code, *error) || !is_final(sqlstate, policy)) ReThrowError(error);
    text* message = cstring_to_text(psprintf("%s: %s", sqlstate, error->message));
    End end{message, config::status_of_error(policy.error_statuses, sqlstate)};
    FreeErrorData(error);
    return end;
}

// Meanwhile no call ends the claim. An error that goes on takes claim and mark along.
End run_under_claim(const store::Identity& id, const Operation& operation, Jsonb* request) {
    pg::UserCode code;
    open_claim(id)->operated = true;
    ErrorData* error = run_guarded(operation, request, &code);
    End end = error == nullptr ? End{} : failure_of(error, code, id.scope);
    open_claim(id)->operated = false;
    return end;
}

void record_result(const ClaimRef& ref, const End& end, const Operation& operation) {
    Response response{};
    if (end.error == nullptr) {
        operation.answer(operation.argument, &response);
        (void)complete(ref, response, std::nullopt);
    } else {
        response.status_code = end.status_code;
        (void)fail(ref, response, Failure{end.error, false, std::nullopt, false});
    }
}

}  // namespace

Answer execute(const Question& question, const Operation& operation) {
    Answer answer = begin(question);
    if (answer.decision->outcome != core::Outcome::Execute) return answer;
    const store::Record& granted = answer.record;
    End end = run_under_claim(granted.id, operation, question.request);
    record_result({question.function, granted.id, granted.token}, end, operation);
    Answer recorded = get(granted.id);
    if (recorded.has_record) answer.record = recorded.record;
    return answer;
}

}  // namespace idem::claim
