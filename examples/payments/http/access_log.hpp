// One line for each request: method, path, status, outcome, milliseconds. Never a key or a body.
#pragma once

#include <chrono>
#include <ostream>

#include "message.hpp"

namespace http {

void log_access(std::ostream& out, const Request& request, const Answer& answer,
                std::chrono::steady_clock::duration took);

}  // namespace http
