#include "input.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "client/key.hpp"

namespace payments {
namespace {

using nlohmann::json;

// The body as sent, which a parser would not give back: it is the line's last member. The member's
// name can't occur earlier, since inside of a JSON string its quotes would be escaped.
std::string raw_body(const std::string& line) {
    constexpr char kName[] = "\"body\":";
    const auto start = line.find(kName);
    const auto end = line.rfind('}');
    if (start == std::string::npos || end == std::string::npos) {
        throw std::runtime_error("no body");
    }
    const auto from = start + sizeof kName - 1;
    return line.substr(from, end - from);
}

std::string as_text(const json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

// Lines whose field is not simply the quoted key say so.
std::optional<std::string> field_of(const json& fields) {
    if (fields.contains("header")) return fields["header"].get<std::string>();
    if (fields.at("key").is_null()) return std::nullopt;
    return client::key_field(fields.at("key"));
}

Request parse(const std::string& line) {
    const json fields = json::parse(line);
    Request request{};
    request.n = fields.at("n");
    request.tenant = fields.at("tenant");
    request.method = fields.at("method");
    request.path = fields.at("path");
    if (!fields.at("key").is_null()) request.key = fields.at("key").get<std::string>();
    request.field = field_of(fields);
    request.body = raw_body(line);
    const json& body = fields.at("body");
    request.customer = body.at("customer");
    request.currency = body.at("amount").at("currency");
    request.amount = as_text(body.at("amount").at("value"));
    request.expect = fields.at("expect");
    request.after = fields.value("after", 0);
    request.twin = fields.value("together_with", 0);
    return request;
}

// A line may only refer to earlier ones; otherwise the players could wait for each other for ever.
void check_order(const Request& request, int expected_n) {
    if (request.n != expected_n) throw std::runtime_error("lines are not numbered in order");
    if (request.after >= request.n || request.twin >= request.n) {
        throw std::runtime_error("refers to a line that comes later");
    }
}

}  // namespace

std::vector<Request> read_requests(const std::string& file) {
    std::ifstream in(file);
    if (!in) throw std::runtime_error("cannot open " + file);
    std::vector<Request> requests;
    for (std::string line; std::getline(in, line);) {
        const int n = static_cast<int>(requests.size()) + 1;
        try {
            requests.push_back(parse(line));
            check_order(requests.back(), n);
        } catch (const std::exception& e) {
            throw std::runtime_error(file + ":" + std::to_string(n) + ": " + e.what());
        }
        if (const int twin = requests.back().twin) requests[twin - 1].twin = n;
    }
    return requests;
}

}  // namespace payments
