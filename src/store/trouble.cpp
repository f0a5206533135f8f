#include "store/trouble.hpp"

#include "core/sqlstate.hpp"

#include "pg/datum.hpp"

namespace idem::store {

namespace {

TroubleCount told;

}  // namespace

void watch_trouble(TroubleCount count) {
    told = count;
}

// Warnings and notices come here as well, and have states of their own.
void count_trouble(void* argument) {
    const char* state = unpack_sql_state(geterrcode());
    if (told != nullptr && core::is_trouble(state))
        told(pg::bytes_of(static_cast<text*>(argument)));
}

}  // namespace idem::store
