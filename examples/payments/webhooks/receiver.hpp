// POST /webhooks: handles each event once, in whatever order and number they come.
#pragma once

#include "service/database.hpp"

namespace webhooks {

// A real receiver would verify the sender's signature first.
idempotency::Answer receive(payments::Pool& pool, const idempotency::Request& request);

}  // namespace webhooks
