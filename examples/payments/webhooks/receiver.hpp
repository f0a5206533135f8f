// POST /webhooks: takes each event once, in whatever order and number they come.
#pragma once

#include <httplib.h>

#include "idempotency/connection_pool.hpp"

namespace webhooks {

// A real receiver would verify the sender's signature first.
httplib::Response receive(idempotency::ConnectionPool& pool, const httplib::Request& request);

}  // namespace webhooks
