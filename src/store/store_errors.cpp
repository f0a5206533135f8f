#include "store/store_errors.hpp"

#include "core/sqlstate.hpp"

#include "pg/datum.hpp"

namespace idem::store {

namespace {

StoreErrorCount told;

}  // namespace

void watch_store_errors(StoreErrorCount count) {
    told = count;
}

// Warnings and notices arrive here too, with states of their own.
void count_store_error(void* argument) {
    const char* state = unpack_sql_state(geterrcode());
    if (told != nullptr && core::is_store_error(state))
        told(pg::bytes_of(static_cast<text*>(argument)));
}

}  // namespace idem::store
