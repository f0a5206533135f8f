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

// Why the operation failed, if that is final. Else the error again: the transaction rolls back, and
// the retry runs. An error of the extension says nothing about the request.
End failure_of(ErrorData* error, const pg::UserCode& code, const text* scope) {
    const char* sqlstate = unpack_sql_state(error->sqlerrcode);
    config::ScopePolicy policy = config::policy_for(pg::bytes_of(scope));
    std::optional<std::int32_t> status = config::status_of_error(policy.error_statuses, sqlstate);
    bool is_final = status.has_value();
    if (!is_final && policy.final_errors == nullptr) {
        is_final = core::is_fault_of_request(sqlstate);
    } else if (!is_final) {
        pg::TextList entries = pg::text_list(policy.final_errors, "final_errors");
        is_final = core::is_listed(sqlstate, entries.items, entries.count);
    }
    if (pg::is_our_error(code, *error) || !is_final) ReThrowError(error);
    text* message = cstring_to_text(psprintf("%s: %s", sqlstate, error->message));
    End end{message, status};
    FreeErrorData(error);
    return end;
}

}  // namespace

Answer execute(const Question& question, const Operation& operation) {
    Answer answer = begin(question);
    if (answer.decision->outcome != core::Outcome::Execute) return answer;
    const store::Record& granted = answer.record;
    // Until it has returned no call ends the claim. An error that goes on takes claim and mark
    // along.
    pg::UserCode code;
    open_claim(granted.id)->operated = true;
    ErrorData* error = run_guarded(operation, question.request, &code);
    End end = error == nullptr ? End{} : failure_of(error, code, granted.id.scope);
    open_claim(granted.id)->operated = false;
    ClaimRef ref{question.function, granted.id, granted.token};
    Response response{};
    if (end.error == nullptr) {
        operation.answer(operation.argument, &response);
        (void)complete(ref, response, std::nullopt);
    } else {
        response.status_code = end.status_code;
        (void)fail(ref, response, Failure{end.error, false, std::nullopt, false});
    }
    Answer recorded = get(granted.id);
    if (recorded.has_record) answer.record = recorded.record;
    return answer;
}

}  // namespace idem::claim
