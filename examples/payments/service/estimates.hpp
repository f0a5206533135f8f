// POST /estimates: adds up, and has no use for a database.
#pragma once

#include <httplib.h>

#include "idempotency/call.hpp"

namespace payments {

httplib::Response estimate(const idempotency::Call& call);

}  // namespace payments
