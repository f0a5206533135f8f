#include <exception>
#include <new>

#include "pg/boundary.hpp"

namespace idem::pg {

namespace {

enum class Caught { Nothing, BadAlloc, Other };

void terminate_session() {
    ereport(FATAL, (errcode(ERRCODE_INTERNAL_ERROR),
                    errmsg("idempotency: an unexpected C++ exception ended this session")));
    pg_unreachable();
}

// A separate frame: its handlers have been left before the error is raised.
Caught run(SqlFunction body, FunctionCallInfo fcinfo, Datum* result) {
    try {
        *result = body(fcinfo);
        return Caught::Nothing;
    } catch (const std::bad_alloc&) {
        return Caught::BadAlloc;
    } catch (...) {
        return Caught::Other;
    }
}

// Marks on the stack of error contexts that a function of ours is running.
void in_function(void*) {}

void note_raiser(void* argument);

// The innermost of the two marks tells whose code runs.
bool is_in_our_function() {
    for (ErrorContextCallback* frame = error_context_stack; frame != nullptr;
         frame = frame->previous) {
        if (frame->callback == in_function) return true;
        if (frame->callback == note_raiser) return false;
    }
    return false;
}

// Messages below an error come here as well, with their own SQLSTATEs.
bool is_message(int sqlstate) {
    return sqlstate == ERRCODE_SUCCESSFUL_COMPLETION ||
           ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_WARNING;
}

void note_raiser(void* argument) {
    auto* code = static_cast<UserCode*>(argument);
    int sqlstate = geterrcode();
    if (is_message(sqlstate)) return;
    int& raiser = is_in_our_function() ? code->ours : code->users;
    int& other = &raiser == &code->ours ? code->users : code->ours;
    raiser = sqlstate;
    if (other == sqlstate) other = 0;
}

void restore(const Subtransaction& outer) {
    MemoryContextSwitchTo(outer.context);
    CurrentResourceOwner = outer.owner;
}

}  // namespace

Datum guarded(SqlFunction body, FunctionCallInfo fcinfo) {
    ErrorContextCallback frame{error_context_stack, in_function, nullptr};
    error_context_stack = &frame;
    Datum result = 0;
    Caught caught = run(body, fcinfo, &result);
    error_context_stack = frame.previous;
    switch (caught) {
        case Caught::Nothing:
            return result;
        case Caught::BadAlloc:
            ereport(ERROR,
                    (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"),
                     errdetail("Memory for the rules of idempotency could not be allocated.")));
        case Caught::Other:
            break;
    }
    ereport(ERROR,
            (errcode(ERRCODE_INTERNAL_ERROR), errmsg("idempotency: unexpected C++ exception")));
    pg_unreachable();
}

void end_session_on_terminate() {
    std::set_terminate(terminate_session);
}

void enter_user_code(UserCode* code) {
    *code = {{error_context_stack, note_raiser, code}, 0, 0};
    error_context_stack = &code->frame;
}

void leave_user_code(const UserCode& code) {
    error_context_stack = code.frame.previous;
}

bool is_our_error(const UserCode& code, const ErrorData& error) {
    return error.sqlerrcode == code.ours;
}

Subtransaction begin_subtransaction() {
    Subtransaction outer{CurrentMemoryContext, CurrentResourceOwner};
    BeginInternalSubTransaction(nullptr);
    MemoryContextSwitchTo(outer.context);
    return outer;
}

void commit_subtransaction(const Subtransaction& outer) {
    ReleaseCurrentSubTransaction();
    restore(outer);
}

ErrorData* abort_subtransaction(const Subtransaction& outer) {
    MemoryContextSwitchTo(outer.context);
    ErrorData* error = CopyErrorData();
    FlushErrorState();
    RollbackAndReleaseCurrentSubTransaction();
    restore(outer);
    return error;
}

void require_no_parallel_mode(const char* function) {
    PreventCommandIfParallelMode(function);
}

void require_writable(const char* function) {
    require_no_parallel_mode(function);
    PreventCommandIfReadOnly(function);
    PreventCommandDuringRecovery(function);
}

}  // namespace idem::pg
