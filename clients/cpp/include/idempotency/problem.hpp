// Problem documents (RFC 9457) of problems found outside a claim. Those of the outcomes come from
// idem_problem.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "http.hpp"

namespace idempotency {

inline Answer problem(const nlohmann::json& document) {
    const auto text = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return {document.value("status", 500), {{"Content-Type", "application/problem+json"}}, text};
}

inline Answer problem(int status, const std::string& type, const std::string& title,
                      const std::string& detail = "") {
    nlohmann::json document = {{"type", type}, {"title", title}, {"status", status}};
    if (!detail.empty()) document["detail"] = detail;
    return problem(document);
}

inline Answer with(Answer answer, const std::string& name, const std::string& value) {
    set(answer.headers, name, value);
    return answer;
}

inline Answer bad_json() {
    return problem(400, "/problems/bad-json", "Malformed body", "The body is not JSON.");
}

inline Answer too_large(const std::string& detail) {
    return problem(413, "/problems/too-large", "Content too large", detail);
}

inline Answer unauthorized() {
    return with(
        problem(401, "/problems/unauthorized", "Unauthorized", "Send valid credentials, once."),
        "WWW-Authenticate", "Bearer");
}

// It is not known whether anything happened: repeat the same request.
inline Answer unavailable(int status = 503) {
    return with(problem(status, "/problems/idempotency/unavailable", "Temporarily unavailable",
                        "Whether the request took effect is not known; repeat it with the same key "
                        "to get its answer."),
                "Retry-After", "1");
}

// Another execution of the request is running.
inline Answer claim_lost(int status = 409) {
    return with(problem(status, "/problems/idempotency/in-progress",
                        "A request is outstanding for this Idempotency-Key",
                        "Another attempt has taken this request over; repeat it later to get its "
                        "answer."),
                "Retry-After", "1");
}

// A rolled-back transaction, or work that reported that it had no effect.
inline Answer rolled_back() {
    return problem(500, "/problems/internal-error", "Internal error",
                   "The request failed and left nothing behind; it may be sent again.");
}

// A claim that was failed retryably, or cannot be ended.
inline Answer half_done() {
    return problem(500, "/problems/internal-error", "Internal error",
                   "The request failed and may have had effects; repeat it with the same key, and "
                   "it goes on from where it came to, or you are told why not.");
}

inline Answer answer_too_large() {
    return problem(500, "/problems/idempotency/answer-too-large", "The answer is too large",
                   "The answer can't be kept, so the request was not carried out to its end.");
}

}  // namespace idempotency
