// The boundary between C++ and the server's errors.
//
// C++ exceptions: each SQL function enters through IDEM_FUNCTION, which catches all of them. It
// raises an error after the handler has been left, because a longjmp out of a catch block would
// leak the exception. Core entries are noexcept, so this is a second net.
//
// The server's errors stop at a subtransaction, as in PL/pgSQL's exception blocks.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

using SqlFunction = Datum (*)(FunctionCallInfo);

// Calls `body`; a C++ exception becomes an ERROR (53200 for want of memory, XX000 otherwise).
Datum guarded(SqlFunction body, FunctionCallInfo fcinfo);

// A function that writes calls one of these first. The first raises an error (25000) only while a
// parallel plan runs, with the server's own text. The second raises one (25006) also in a read-only
// transaction or on a standby.
void require_no_parallel_mode(const char* function);
void require_writable(const char* function);

// An exception that is never caught would abort(), and SIGABRT restarts the whole cluster: end this
// session instead. Called once, when the library is loaded.
void end_session_on_terminate();

// User code that runs below one of our functions. Records who raised an error: that code, or a
// function of ours that it called. The server calls back for each error while it is raised. A
// handler that raises an error again causes no call, so the last SQLSTATE of each counts.
struct UserCode {
    ErrorContextCallback frame;
    int ours;   // the last SQLSTATE that a function of ours has raised
    int users;  // the last one that the user's code has raised
};

// Between these the mark is set. Code that stops an error restores error_context_stack itself.
void enter_user_code(UserCode* code);
void leave_user_code(const UserCode& code);

// Whether a function of ours raised the error that ended the user code.
bool is_our_error(const UserCode& code, const ErrorData& error);

// The state before the subtransaction, to be restored after it.
struct Subtransaction {
    MemoryContext context;
    ResourceOwner owner;
};

// The memory context stays the caller's.
Subtransaction begin_subtransaction();

// Commits the subtransaction.
void commit_subtransaction(const Subtransaction& outer);

// In a PG_CATCH: rolls the subtransaction back and returns the error, no longer in progress. The
// caller raises it again with ReThrowError, or frees it.
ErrorData* abort_subtransaction(const Subtransaction& outer);

}  // namespace idem::pg

// Declares the C symbol `name` that SQL calls, implemented by `body`.
#define IDEM_FUNCTION(name, body)                                                               \
    extern "C" {                                                                                \
    __attribute__((visibility("default"))) extern const Pg_finfo_record* pg_finfo_##name(void); \
    __attribute__((visibility("default"))) Datum name(PG_FUNCTION_ARGS);                        \
    const Pg_finfo_record* pg_finfo_##name(void) {                                              \
        static const Pg_finfo_record my_finfo = {1};                                            \
        return &my_finfo;                                                                       \
    }                                                                                           \
    Datum name(PG_FUNCTION_ARGS) {                                                              \
        return idem::pg::guarded(body, fcinfo);                                                 \
    }                                                                                           \
    }                                                                                           \
    static_assert(true, "takes the semicolon")
