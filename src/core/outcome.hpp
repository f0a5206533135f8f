// The words for outcomes and statuses, and what they mean over HTTP.
#pragma once

#include <optional>
#include <string_view>

#include "core/decision.hpp"

namespace idem::core {

std::string_view outcome_word(Outcome outcome) noexcept;
std::optional<Outcome> outcome_from_word(std::string_view word) noexcept;
std::string_view status_word(Status status) noexcept;

// One way in which a request is refused over HTTP. Status codes and titles follow
// draft-ietf-httpapi-idempotency-key-header-07, section 2.7, where it has any.
struct Problem {
    int http_status;
    std::string_view type;  // a relative URI reference, unique per problem
    std::string_view title;
    std::string_view detail;
};

// What a claim says of itself; empty is null.
struct ClaimWords {
    std::string_view outcome;
    std::string_view status;
    bool has_status_code;
};

// The word by which problem_of knows the document of a claim: its outcome; without one, what its
// status makes of a repeat; 'failed' for an answer that has failed and has no status of its own.
// May be empty.
std::string_view problem_word(const ClaimWords& claim) noexcept;

// The problem of an outcome word; also of 'missing_key' and 'bad_key', which no record has, and of
// 'failed'.
// nullptr where there is no problem (execute, replay) and for a word that is none of ours; `known`
// tells these apart.
const Problem* problem_of(std::string_view outcome_word, bool* known) noexcept;

}  // namespace idem::core
