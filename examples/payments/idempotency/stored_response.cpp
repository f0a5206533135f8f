#include "stored_response.hpp"

#include <nlohmann/json.hpp>

namespace idempotency {

using nlohmann::json;

std::string stored_headers(const httplib::Response& response) {
    json stored = json::object();
    const auto& headers = response.headers;
    for (auto it = headers.begin(); it != headers.end();) {
        auto values = json::array();
        const auto same = headers.equal_range(it->first);
        for (auto each = same.first; each != same.second; ++each) values.push_back(each->second);
        stored[it->first] = values.size() == 1 ? values[0] : values;
        it = same.second;
    }
    return stored.dump();
}

httplib::Response stored_response(int status, const std::string& headers, std::string body) {
    httplib::Response response;
    response.status = status;
    response.body = std::move(body);
    const json stored = json::parse(headers);
    for (const auto& [name, value] : stored.items()) {
        const json values = value.is_array() ? value : json::array({value});
        for (const auto& each : values) response.set_header(name, each.get<std::string>());
    }
    response.set_header("Idempotent-Replayed", "true");
    return response;
}

}  // namespace idempotency
