// POST /estimates: adds up, and has no use for a database.
#pragma once

#include <idempotency/route.hpp>

namespace payments {

idempotency::Answer estimate(const idempotency::Exchange& call);

}  // namespace payments
