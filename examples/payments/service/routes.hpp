// All routes of the service, with their options of the idempotency middleware.
#pragma once

#include <chrono>

#include "database.hpp"
#include "http/routes.hpp"
#include "payments.hpp"
#include "transfers.hpp"

namespace payments {

// Threads, each of which may use a connection. Handlers that call the gateway and those that only
// use the database have separate threads.
struct Lanes {
    http::Lane& database;
    http::Lane& gateway;
};

// All objects passed by reference must outlive the server.
void add_routes(http::Routes& routes, Lanes lanes, Pool& pool, const Payments& payments,
                const Transfers& transfers, std::chrono::milliseconds lease);

}  // namespace payments
