#include "call.hpp"

#include <algorithm>
#include <cctype>

#include "json_body.hpp"
#include "problem.hpp"

namespace idempotency {
namespace {

constexpr char kKeyHeader[] = "Idempotency-Key";

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// application/json, application/vnd.api+json; with parameters or without.
bool is_json(const httplib::Request& request) {
    std::string type = request.get_header_value("Content-Type");
    type.erase(std::find(type.begin(), type.end(), ';'), type.end());
    type.erase(std::find(type.begin(), type.end(), ' '), type.end());
    std::transform(type.begin(), type.end(), type.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return type == "application/json" || ends_with(type, "+json");
}

nlohmann::json parse_body(const httplib::Request& request) {
    if (!is_json(request)) {
        throw Refusal(problem(415, "/problems/unsupported-media-type", "Unsupported media type",
                              "Send the body as application/json."));
    }
    return parse_json(request.body);
}

std::string authenticate(const httplib::Request& request, const Options& options) {
    auto principal = options.principal(request);
    if (!principal) throw Refusal(unauthorized());
    return *std::move(principal);
}

// Keys are ASCII; other bytes might not even be text to the database.
bool is_ascii(const std::string& field) {
    return std::all_of(field.begin(), field.end(), [](unsigned char c) { return c && c < 0x80; });
}

bool is_quoted(const std::string& field) {
    const auto first = field.find_first_not_of(" \t");
    return first != std::string::npos && field[first] == '"';
}

}  // namespace

Call read_call(const httplib::Request& request, const Options& options) {
    Call call{request, authenticate(request, options), nullptr, ""};
    if (needs_a_key(request)) call.body = parse_body(request);
    return call;
}

bool needs_a_key(const httplib::Request& request) {
    return request.method == "POST" || request.method == "PATCH";
}

std::optional<std::string> key_field(const httplib::Request& request, bool strict) {
    const auto count = request.get_header_value_count(kKeyHeader);
    const std::string field = request.get_header_value(kKeyHeader);
    // An empty field is none: some versions of httplib drop it, others keep it.
    if (count <= 1 && field.empty()) return std::nullopt;
    const bool acceptable = count == 1 && is_ascii(field) && (!strict || is_quoted(field));
    return acceptable ? field : "";
}

}  // namespace idempotency
