// Counts errors that end an access to the records, for administrators. They undo the transaction,
// so no row can report them. The hot path avoids PG_TRY, which saves the whole context of the
// stack. Instead the server's error context callback counts: it runs while an error is raised, and
// costs three assignments.
#pragma once

#include <type_traits>

#include "pg/pg.hpp"

namespace idem::store {

using StoreErrorCount = void (*)(std::string_view scope);

// Sets the function to call with the scope of the key, when the library is loaded. It runs while
// the error is being raised, so it must raise none. Errors that say "again" or "stop" do not count
// (core::is_store_error).
void watch_store_errors(StoreErrorCount count);

// An ErrorContextCallback for an access to a record of the scope `argument`, a text.
void count_store_error(void* argument);

// Runs an access. Code that catches an error restores error_context_stack.
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
