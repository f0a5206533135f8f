// A request that has passed the checks in front of every handler.
#pragma once

#include <httplib.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "options.hpp"

namespace idempotency {

struct Call {
    const httplib::Request& request;
    std::string principal;
    nlohmann::json body;  // null if the request has none
    std::string key;      // once it is claimed; empty where the call runs unprotected
};

// Throws Refusal (problem.hpp): 401, 415 or 400.
Call read_call(const httplib::Request& request, const Options& options);

// Only these two methods are not idempotent by themselves.
bool needs_a_key(const httplib::Request& request);

// The field Idempotency-Key as the server is to parse it: nothing if the request has none, and ""
// (which is no key) for what must not even be looked at.
std::optional<std::string> key_field(const httplib::Request& request, bool strict);

}  // namespace idempotency
