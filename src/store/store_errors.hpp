// Errors that an access to the records ends with, counted for whoever looks after the server. They
// undo the transaction, so that no row can tell of them; and the hot path is no place for PG_TRY,
// which saves the whole context of the stack. The server calls back for each error while it is
// raised, to have its context, and putting a callback there costs three assignments.
#pragma once

#include <type_traits>

#include "pg/pg.hpp"

namespace idem::store {

using StoreErrorCount = void (*)(std::string_view scope);

// Who is told, with the scope of the key; set when the library is loaded. Called while the error is
// being raised, so it must raise none. Errors that say "again" or "stop" are no trouble of the
// store (core::is_store_error).
void watch_store_errors(StoreErrorCount count);

// ErrorContextCallback, of an access to a record of the scope `argument`, a text.
void count_store_error(void* argument);

// Runs an access. Whoever stops an error puts error_context_stack back where it was.
template <typename Access>
auto watched(const text* scope, Access access) {
    ErrorContextCallback frame{error_context_stack, count_store_error, const_cast<text*>(scope)};
    error_context_stack = &frame;
    if constexpr (std::is_void_v<decltype(access())>) {
        access();
        error_context_stack = frame.previous;
    } else {
        auto result = access();
        error_context_stack = frame.previous;
        return result;
    }
}

}  // namespace idem::store
