// Who is calling: "Authorization: Bearer sk_<tenant>". A real service would look the key up.
#pragma once

#include <httplib.h>

#include <optional>
#include <string>

namespace payments {

std::optional<std::string> tenant_of(const httplib::Request& request);

// For routes without the middleware. Throws idempotency::Refusal with 401.
std::string required_tenant(const httplib::Request& request);

}  // namespace payments
