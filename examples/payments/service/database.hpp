// How the service uses its connections.
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

// The answer of a route that has no key: what a failure means to its client.
idempotency::Answer answered(const std::function<idempotency::Answer()>& work);

}  // namespace payments
