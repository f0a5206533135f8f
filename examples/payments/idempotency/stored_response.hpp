// A response as it is kept with its key: status, headers as a JSON object, the bytes of the body.
#pragma once

#include <httplib.h>
#include <string>

namespace idempotency {

// A header that occurs more than once becomes an array of its values, in their order.
std::string stored_headers(const httplib::Response& response);

// The replay: what was stored, and a header that says so.
httplib::Response stored_response(int status, const std::string& headers, std::string body);

}  // namespace idempotency
