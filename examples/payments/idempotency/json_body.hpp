// Bodies as JSON, with a limit on nesting: what is copied or printed recursively must not be as
// deep as a client likes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace idempotency {

// Throws Refusal (problem.hpp) with 400.
nlohmann::json parse_json(const std::string& text);

}  // namespace idempotency
