// All routes of the service, and what each wants of the idempotency middleware.
#pragma once

#include <chrono>

#include "http/routes.hpp"
#include "idempotency/connection_pool.hpp"
#include "payments.hpp"
#include "transfers.hpp"

namespace payments {

// Everything passed by reference must outlive the server.
void add_routes(http::Routes& routes, idempotency::ConnectionPool& pool, const Payments& payments,
                const Transfers& transfers, std::chrono::milliseconds lease);

}  // namespace payments
