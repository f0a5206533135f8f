// The caller: "Authorization: Bearer sk_<tenant>". A real service would look the key up.
#pragma once

#include <idempotency/http.hpp>
#include <optional>
#include <string>

namespace payments {

std::optional<std::string> tenant_of(const idempotency::Request& head);

}  // namespace payments
