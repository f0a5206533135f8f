#include "access_log.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace http {
namespace {

// One word, whatever the client sent: a value must forge neither a line nor a column.
std::string word(std::string text) {
    const auto is_unfit = [](unsigned char c) { return c <= ' ' || c > '~'; };
    std::replace_if(text.begin(), text.end(), is_unfit, '?');
    return text.empty() ? "-" : text;
}

// The last word of a problem's type is the outcome of the request.
std::string problem_word(const Answer& answer) {
    const auto document = nlohmann::json::parse(answer.body, nullptr, false);
    const bool has_type =
        document.is_object() && document.contains("type") && document["type"].is_string();
    if (!has_type) return "error";
    const auto type = document["type"].get<std::string>();
    return word(type.substr(type.rfind('/') + 1));
}

std::string outcome_of(const Answer& answer) {
    if (!idempotency::values_of(answer.headers, "Idempotent-Replayed").empty()) return "replayed";
    if (idempotency::media_type(answer.headers) == "application/problem+json") {
        return problem_word(answer);
    }
    return "done";
}

}  // namespace

void log_access(std::ostream& out, const Request& request, const Answer& answer,
                std::chrono::steady_clock::duration took) {
    const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(took).count();
    std::ostringstream line;
    line << word(request.method) << ' ' << word(path_of(request)) << ' ' << answer.status << ' '
         << outcome_of(answer) << ' ' << milliseconds << " ms\n";
    out << line.str() << std::flush;
}

}  // namespace http
