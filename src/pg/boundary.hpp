// Where calls begin and errors stop. C++ exceptions: each SQL function enters through
// IDEM_FUNCTION, which lets none out; an error is raised after the handler has been left, because a
// longjmp out of a catch block would leak the exception. Core entries are noexcept, so this is a
// second net. The server's errors: at a subtransaction of ours, as PL/pgSQL's exception blocks have
// one.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

using SqlFunction = Datum (*)(FunctionCallInfo);

// Calls `body`; a C++ exception becomes an ERROR (53200 for want of memory, XX000 otherwise).
Datum guarded(SqlFunction body, FunctionCallInfo fcinfo);

// What a function that writes asks first. The one is an error (25000) only while a parallel plan
// runs, as the server's own parts say it; the other also (25006) in a read-only transaction or on a
// standby.
void require_no_parallel_mode(const char* function);
void require_writable(const char* function);

// An exception that nothing caught would abort(), and SIGABRT restarts the whole cluster: end this
// session instead. Called once, when the library is loaded.
void end_session_on_terminate();

// User code that runs below one of our functions, and who has raised an error meanwhile: that
// code, or a function of ours that it has called. The server calls back for each error while it is
// raised. One that a handler raises again comes without a call, so the last of its SQLSTATE counts.
struct UserCode {
    ErrorContextCallback frame;
    int ours;   // the last SQLSTATE that a function of ours has raised
    int users;  // and the last one of the code's own
};

// Until the one that leaves it; whoever stops an error puts error_context_stack back by itself.
void enter_user_code(UserCode* code);
void leave_user_code(const UserCode& code);

// Whether an error that has ended it was raised by a function of ours.
bool is_our_error(const UserCode& code, const ErrorData& error);

// What was current before the subtransaction, to be so again after it.
struct Subtransaction {
    MemoryContext context;
    ResourceOwner owner;
};

// The memory context stays the caller's.
Subtransaction begin_subtransaction();

// Keeps what was done.
void commit_subtransaction(const Subtransaction& outer);

// In a PG_CATCH: undoes what was done and returns the error, which is over then. The caller raises
// it again with ReThrowError, or frees it.
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
