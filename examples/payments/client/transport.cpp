#include "transport.hpp"

#include <httplib.h>

#include <algorithm>

namespace payments::client {
namespace {

using namespace std::chrono_literals;

constexpr auto kConnecting = 5s;

std::string small_letters(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return text;
}

// White space around a field does not belong to it (RFC 9110, section 5.5), and some versions of
// httplib would send nothing at all and wait for the answer.
std::string trimmed(const std::string& field) {
    constexpr char kWhite[] = " \t";
    const auto first = field.find_first_not_of(kWhite);
    if (first == std::string::npos) return "";
    return field.substr(first, field.find_last_not_of(kWhite) - first + 1);
}

Answer answer_of(const httplib::Response& response) {
    Answer answer;
    answer.status = response.status;
    answer.body = response.body;
    for (const auto& [name, value] : response.headers) {
        auto [field, first] = answer.headers.emplace(small_letters(name), value);
        if (!first) field->second += ", " + value;
    }
    return answer;
}

httplib::Request spell(const Request& request) {
    httplib::Request spelled;
    spelled.method = request.method;
    spelled.path = request.path;
    for (const auto& [name, value] : request.headers) spelled.headers.emplace(name, trimmed(value));
    spelled.headers.emplace("Accept-Encoding", "identity");  // the bytes as they are stored
    const bool has_body = request.method != "GET" && request.method != "HEAD";
    if (has_body) spelled.headers.emplace("Content-Type", request.content_type);
    spelled.body = request.body;
    return spelled;
}

Silence silence_of(httplib::Error error) {
    const bool unreached =
        error == httplib::Error::Connection || error == httplib::Error::ConnectionTimeout;
    return unreached ? Silence::Unreached : Silence::Lost;
}

}  // namespace

Attempt HttpTransport::send(const std::string& server, const Request& request) {
    httplib::Client connection(server);
    connection.set_connection_timeout(kConnecting);
    connection.set_read_timeout(patience_);
    connection.set_write_timeout(patience_);
    connection.set_url_encode(false);  // the path is sent unchanged
    const auto result = connection.send(spell(request));
    if (!result) return {std::nullopt, silence_of(result.error())};
    return {answer_of(*result)};
}

}  // namespace payments::client
