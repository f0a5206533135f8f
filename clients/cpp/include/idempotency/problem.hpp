// Problem documents (RFC 9457) of problems found outside a claim. Those of the outcomes come from
// idem_problem.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "contract.hpp"
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

// The document of a word of contract.hpp, without the server's help.
inline Answer local_problem(const std::string& word, const std::string& detail = "") {
    const auto& known =
        *std::find_if(std::begin(contract::kProblems), std::end(contract::kProblems) - 1,
                      [&word](const contract::Problem& each) { return each.word == word; });
    std::string type = "/problems/idempotency/";
    for (const char c : word) type += c == '_' ? '-' : c;
    return problem(known.status, type, known.title, detail);
}

inline Answer bad_json() {
    return local_problem("bad_json");
}

inline Answer too_large(const std::string& detail) {
    return local_problem("body_too_large", detail);
}

inline Answer unauthorized() {
    return with(local_problem("unauthorized", "Send valid credentials, once."), "WWW-Authenticate",
                "Bearer");
}

// Whether anything happened is not known: repeat the same request.
inline Answer unavailable() {
    return with(local_problem("unavailable",
                              "Whether the request took effect is not known; repeat it with the "
                              "same key to get its answer."),
                "Retry-After", "1");
}

// Another execution of the request is running.
inline Answer claim_lost() {
    return with(local_problem("in_progress",
                              "Another attempt has taken this request over; repeat it later to get "
                              "its answer."),
                "Retry-After", "1");
}

// A rolled-back transaction, or work that reported that it had no effect.
inline Answer rolled_back() {
    return local_problem("internal",
                         "The request failed and left nothing behind; it may be sent again.");
}

// A claim that was failed retryably, or cannot be ended.
inline Answer half_done() {
    return local_problem("internal",
                         "The request failed and may have had effects; repeat it with the same "
                         "key, and it goes on from where it came to, or you are told why not.");
}

inline Answer answer_too_large() {
    return local_problem("answer_too_large");
}

}  // namespace idempotency
