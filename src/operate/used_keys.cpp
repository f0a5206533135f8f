// The triggers of idempotency.encryption_key.

#include "store/key_use.hpp"

#include "api/arguments.hpp"
#include "pg/boundary.hpp"

namespace idem::operate {

namespace {

// After each row, and after TRUNCATE.
Datum changed(FunctionCallInfo fcinfo) {
    api::check_is_trigger(fcinfo);
    store::announce_key_change();
    return 0;
}

}  // namespace

}  // namespace idem::operate

IDEM_FUNCTION(idem_key_changed, idem::operate::changed);
