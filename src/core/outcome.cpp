#include "core/outcome.hpp"

#include <utility>

namespace idem::core {
namespace {

struct OutcomeWord {
    Outcome outcome;
    std::string_view word;
};

constexpr OutcomeWord kOutcomeWords[] = {
    {Outcome::Execute, "execute"},        {Outcome::InProgress, "in_progress"},
    {Outcome::Mismatch, "mismatch"},      {Outcome::Replay, "replay"},
    {Outcome::RetryLater, "retry_later"}, {Outcome::Exhausted, "exhausted"},
    {Outcome::Expired, "expired"},        {Outcome::Unknown, "unknown"},
};

struct WordProblem {
    std::string_view word;
    Problem problem;
};

constexpr WordProblem kProblems[] = {
    {"missing_key",
     {400, "/problems/idempotency/missing-key", "Idempotency-Key is missing",
      "This operation requires an Idempotency-Key header with a unique value for each new "
      "request."}},
    {"bad_key",
     {400, "/problems/idempotency/bad-key", "Idempotency-Key is malformed",
      "The Idempotency-Key header must be a quoted string or a bare value of 1 to 255 visible "
      "characters."}},
    {"in_progress",
     {409, "/problems/idempotency/in-progress", "A request is outstanding for this Idempotency-Key",
      "The first request with this key is still being processed; repeat the same request later "
      "to get its answer."}},
    {"mismatch",
     {422, "/problems/idempotency/mismatch", "Idempotency-Key is already used",
      "This key belongs to a request with a different payload; use a new key for a new "
      "request."}},
    {"expired",
     {412, "/problems/idempotency/expired", "Idempotency-Key has expired",
      "The answer to this request is no longer kept; check whether the request took effect "
      "before sending it with a new key."}},
    {"retry_later",
     {503, "/problems/idempotency/retry-later", "The request failed and may be retried later",
      "The last attempt failed for a passing reason; repeat the same request with the same key "
      "after the time given in Retry-After."}},
    {"exhausted",
     {500, "/problems/idempotency/exhausted", "All attempts of the request have failed",
      "The request is not attempted again with this key; contact the operator of the service "
      "before sending it with a new one."}},
    {"unknown",
     {409, "/problems/idempotency/unknown", "The result of the request is not known",
      "The request was interrupted and may have taken effect; an operator has to resolve it, so "
      "don't send it with a new key."}},
    {"failed",
     {500, "/problems/idempotency/failed", "The request has failed",
      "The request was attempted and failed for good; a repeat with this key gets the same "
      "answer."}},
};

// A record that is only looked at has the document that a repeat would be told.
constexpr std::pair<std::string_view, std::string_view> kOutcomeOfStatus[] = {
    {"in_progress", "in_progress"}, {"retryable", "retry_later"}, {"unknown", "unknown"},
    {"completed", "replay"},        {"failed", "replay"},
};

}  // namespace

std::string_view outcome_word(Outcome outcome) noexcept {
    for (const OutcomeWord& entry : kOutcomeWords) {
        if (entry.outcome == outcome) return entry.word;
    }
    return "unknown";
}

std::optional<Outcome> outcome_from_word(std::string_view word) noexcept {
    for (const OutcomeWord& entry : kOutcomeWords) {
        if (entry.word == word) return entry.outcome;
    }
    return std::nullopt;
}

std::string_view status_word(Status status) noexcept {
    switch (status) {
        case Status::InProgress:
            return "in_progress";
        case Status::Completed:
            return "completed";
        case Status::Failed:
            return "failed";
        case Status::Retryable:
            return "retryable";
        case Status::Unknown:
            break;
    }
    return "unknown";
}

std::string_view problem_word(const ClaimWords& claim) noexcept {
    std::string_view outcome = claim.outcome;
    for (const auto& [status, told] : kOutcomeOfStatus) {
        if (outcome.empty() && status == claim.status) outcome = told;
    }
    const bool answers = outcome == "replay" || outcome == "execute";
    return answers && claim.status == "failed" && !claim.has_status_code ? "failed" : outcome;
}

const Problem* problem_of(std::string_view outcome_word, bool* known) noexcept {
    for (const WordProblem& entry : kProblems) {
        if (entry.word != outcome_word) continue;
        *known = true;
        return &entry.problem;
    }
    *known = outcome_from_word(outcome_word).has_value();
    return nullptr;
}

}  // namespace idem::core
