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

// In a frame of its own, so that the handlers have been left before anything is raised.
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

void restore(const Subtransaction& outer) {
    MemoryContextSwitchTo(outer.context);
    CurrentResourceOwner = outer.owner;
}

}  // namespace

Datum guarded(SqlFunction body, FunctionCallInfo fcinfo) {
    Datum result = 0;
    switch (run(body, fcinfo, &result)) {
        case Caught::Nothing:
            return result;
        case Caught::BadAlloc:
            ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"),
                            errdetail("Memory for the rules of idempotency could not be had.")));
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
