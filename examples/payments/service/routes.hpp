// All routes of the service, and what each wants of the idempotency middleware.
#pragma once

#include <chrono>

#include "database.hpp"
#include "http/routes.hpp"
#include "payments.hpp"
#include "transfers.hpp"

namespace payments {

// Threads, each of which may use a connection: those that wait for the gateway are others than
// those that wait for the database alone.
struct Lanes {
    http::Lane& database;
    http::Lane& gateway;
};

// Everything passed by reference must outlive the server.
void add_routes(http::Routes& routes, Lanes lanes, Pool& pool, const Payments& payments,
                const Transfers& transfers, std::chrono::milliseconds lease);

}  // namespace payments
