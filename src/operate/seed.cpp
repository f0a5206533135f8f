// The triggers of idempotency.seed.

#include "store/seed.hpp"

#include "api/arguments.hpp"
#include "pg/boundary.hpp"

namespace idem::operate {

using namespace api;

namespace {

// Before each new row.
Datum coming(FunctionCallInfo fcinfo) {
    check_is_trigger(fcinfo);
    auto* data = reinterpret_cast<TriggerData*>(fcinfo->context);
    store::make_room_for_seed(RelationGetRelid(data->tg_relation));
    return PointerGetDatum(data->tg_trigtuple);
}

// After each row, and after TRUNCATE.
Datum changed(FunctionCallInfo fcinfo) {
    check_is_trigger(fcinfo);
    store::announce_seed_change();
    return 0;
}

}  // namespace

}  // namespace idem::operate

IDEM_FUNCTION(idem_seed_coming, idem::operate::coming);
IDEM_FUNCTION(idem_seed_changed, idem::operate::changed);
