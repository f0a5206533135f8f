#include "access_log.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace http {
namespace {

// One word, whatever the client sent: it must not forge a line, nor a column.
std::string word(std::string text) {
    const auto is_unfit = [](unsigned char c) { return c <= ' ' || c > '~'; };
    std::replace_if(text.begin(), text.end(), is_unfit, '?');
    return text.empty() ? "-" : text;
}

// Without the query, which may hold anything.
std::string path_of(const httplib::Request& request) {
    return request.target.substr(0, request.target.find('?'));
}

// The last word of a problem's type is what has become of the request.
std::string problem_word(const httplib::Response& response) {
    const auto document = nlohmann::json::parse(response.body, nullptr, false);
    if (!document.is_object()) return "error";
    const auto type = document.value("type", "error");
    return type.substr(type.rfind('/') + 1);
}

std::string outcome_of(const httplib::Response& response) {
    if (response.has_header("Idempotent-Replayed")) return "replayed";
    if (response.get_header_value("Content-Type") == "application/problem+json") {
        return problem_word(response);
    }
    return "done";
}

}  // namespace

void AccessLog::watch(httplib::Server& server) {
    server.set_logger(
        [this](const auto& request, const auto& response) { write(request, response); });
}

void AccessLog::begin() {
    const std::lock_guard<std::mutex> lock(mutex_);
    begun_[std::this_thread::get_id()] = Clock::now();
}

void AccessLog::write(const httplib::Request& request, const httplib::Response& response) {
    std::ostringstream line;
    line << word(request.method) << ' ' << word(path_of(request)) << ' ' << response.status << ' '
         << outcome_of(response) << ' ';
    const std::lock_guard<std::mutex> lock(mutex_);
    out_ << line.str() << milliseconds_since_begin() << " ms" << std::endl;
}

// A request that could not be read never began.
long long AccessLog::milliseconds_since_begin() {
    const auto begun = begun_.find(std::this_thread::get_id());
    if (begun == begun_.end()) return 0;
    const auto duration = Clock::now() - begun->second;
    begun_.erase(begun);
    return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

}  // namespace http
