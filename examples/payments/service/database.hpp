// The service's use of its connections.
#pragma once

#include <chrono>
#include <functional>
#include <idempotency/pqxx.hpp>
#include <idempotency/route.hpp>
#include <string>

namespace payments {

using Driver = idempotency::Pqxx;
using Pool = idempotency::Pool<Driver>;

Pool::Setup connection_setup(const std::string& application_name);

// Runs a route without a key; tells its client the meaning of a database failure.
idempotency::Answer answered(const std::function<idempotency::Answer()>& work);

}  // namespace payments
