// POST /webhooks: takes each event once, in whatever order and number they come.
#pragma once

#include "common.hpp"

namespace payments {

// 204 when the event is handled, or given up; 503 when the sender should send it again. A real
// receiver would verify the sender's signature first.
Answer receive(Pool& pool, const idempotency::Request& request);

}  // namespace payments
