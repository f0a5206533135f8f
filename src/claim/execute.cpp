// An operation runs in a subtransaction, so that a final error leaves nothing of it but the record
// that says so, as a PL/pgSQL block with an EXCEPTION clause would (exec_stmt_block).

#include "claim/execute.hpp"

#include "core/sqlstate.hpp"

#include "claim/begin.hpp"
#include "claim/holder.hpp"
#include "claim/operator.hpp"
#include "config/policy.hpp"
#include "pg/boundary.hpp"

namespace idem::claim {

namespace {

// What runs, of what, and what it has answered.
struct Run {
    Operation operation;
    void* argument;
    Jsonb* request;
    Response response;
};

// nullptr if it succeeded, else its error, which is over.
ErrorData* run_guarded(Run* run) {
    ErrorData* volatile error = nullptr;
    pg::Subtransaction outer = pg::begin_subtransaction();
    PG_TRY();
    {
        run->operation(run->argument, run->request, &run->response);
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
text* run_under_claim(const store::Identity& id, Run* run) {
    open_claim(id)->operated = true;
    text* failure = failure_of(run_guarded(run), id.scope);
    open_claim(id)->operated = false;
    return failure;
}

void record_result(const ClaimRef& ref, text* failure, const Response& response) {
    if (failure == nullptr)
        (void)complete(ref, response, std::nullopt);
    else
        (void)fail(ref, Response{}, Failure{failure, false, std::nullopt});
}

}  // namespace

Answer execute(const Question& question, Operation operation, void* argument) {
    Answer answer = begin(question);
    if (answer.decision->outcome != core::Outcome::Execute) return answer;
    const store::Record& granted = answer.record;
    Run run{operation, argument, question.request, {}};
    text* failure = run_under_claim(granted.id, &run);
    record_result({question.function, granted.id, granted.token}, failure, run.response);
    Answer recorded = get(granted.id);
    if (recorded.has_record) answer.record = recorded.record;
    return answer;
}

}  // namespace idem::claim
