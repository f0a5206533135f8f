#include "store/store_errors.hpp"

#include "core/sqlstate.hpp"

#include "pg/datum.hpp"

namespace idem::store {

namespace {

StoreErrorCount told;

// Whether the message ends the access. DEBUG, LOG and WARNING arrive here too; a server that reads
// asynchronously (18 and later) logs a damaged block with the state of the error that follows. Only
// a copy of the message has its level. Memory that has run out is always an error.
bool ends_access() {
    if (geterrcode() == ERRCODE_OUT_OF_MEMORY) return true;
    const MemoryContext callers = MemoryContextSwitchTo(TopTransactionContext);
    ErrorData* message = CopyErrorData();
    const bool is_error = message->elevel >= ERROR;
    FreeErrorData(message);
    MemoryContextSwitchTo(callers);
    return is_error;
}

}  // namespace

void watch_store_errors(StoreErrorCount count) {
    told = count;
}

void count_store_error(void* argument) {
    const char* state = unpack_sql_state(geterrcode());
    if (told != nullptr && core::is_store_error(state) && ends_access())
        told(pg::bytes_of(static_cast<text*>(argument)));
}

}  // namespace idem::store
