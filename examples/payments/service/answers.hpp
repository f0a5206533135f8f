// Responses that several routes give.
#pragma once

#include <idempotency/http.hpp>
#include <nlohmann/json.hpp>

namespace payments {

idempotency::Answer json_response(int status, const nlohmann::json& body);
idempotency::Answer not_found();
idempotency::Answer declined();

}  // namespace payments
