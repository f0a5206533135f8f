// POST /estimates: adds up, without a database.
#pragma once

#include <idempotency/route.hpp>

namespace payments {

idempotency::Answer estimate(const idempotency::Exchange& call);

}  // namespace payments
