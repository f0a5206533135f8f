// The responses that several routes give.
#pragma once

#include <httplib.h>

#include <nlohmann/json.hpp>

namespace payments {

httplib::Response json_response(int status, const nlohmann::json& body);
httplib::Response not_found();
httplib::Response declined();

}  // namespace payments
