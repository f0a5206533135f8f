// Bodies as JSON.
#pragma once

#include <idempotency/route.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace payments {

// Limits the nesting, because copies and printing recurse. Throws idempotency::Refusal: 400 or 413.
nlohmann::json parse_json(const std::string& text);

// Refuses other bodies (415, 400, 413) before anything is claimed.
idempotency::Route json_only(idempotency::Route route);

}  // namespace payments
