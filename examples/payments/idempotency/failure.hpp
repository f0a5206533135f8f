// What an exception means to the client.
#pragma once

#include <httplib.h>
#include <exception>

namespace idempotency {

// The connection is broken or can't be had; what it was doing may or may not have been done.
bool is_connection_failure(const std::exception& failure);

// Another holder has the claim (SQLSTATE ID409), or nobody has (ID404).
bool is_lost_claim(const std::exception& failure);

// The answer to a request whose handling ended with this exception. Also serves as what
// httplib::Server::set_exception_handler needs for routes without the middleware.
httplib::Response answer_to(const std::exception_ptr& failure);

}  // namespace idempotency
