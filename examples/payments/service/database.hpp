// How the service uses its connections.
#pragma once

#include <string>

#include "idempotency/connection_pool.hpp"

namespace payments {

idempotency::ConnectionPool::Setup connection_setup(const std::string& application_name);

}  // namespace payments
