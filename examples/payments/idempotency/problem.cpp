#include "problem.hpp"

namespace idempotency {
namespace {

httplib::Response with_header(httplib::Response response, const char* name, const char* value) {
    response.set_header(name, value);
    return response;
}

}  // namespace

httplib::Response problem(int status, const std::string& type, const std::string& title,
                          const std::string& detail) {
    return problem({{"type", type}, {"title", title}, {"status", status}, {"detail", detail}});
}

httplib::Response problem(const nlohmann::json& document) {
    httplib::Response response;
    response.status = document.at("status").get<int>();
    response.set_content(document.dump(), "application/problem+json");
    return response;
}

httplib::Response bad_json() {
    return problem(400, "/problems/bad-json", "Malformed body",
                   "The body is not JSON, or nested too deeply.");
}

httplib::Response unauthorized() {
    return with_header(problem(401, "/problems/unauthorized", "Unauthorized",
                               "Send a valid API key as a bearer token."),
                       "WWW-Authenticate", "Bearer");
}

httplib::Response internal_error() {
    return problem(500, "/problems/internal-error", "Internal error",
                   "The request failed and left nothing behind; it may be sent again.");
}

httplib::Response unavailable() {
    return with_header(problem(503, "/problems/unavailable", "Temporarily unavailable",
                               "Whether the request took effect is not known; repeat it with the "
                               "same key to get its answer."),
                       "Retry-After", "1");
}

httplib::Response claim_lost() {
    return with_header(
        problem(409, "/problems/idempotency/in-progress",
                "A request is outstanding for this Idempotency-Key",
                "Another attempt has taken this request over; repeat it later to get its answer."),
        "Retry-After", "1");
}

}  // namespace idempotency
