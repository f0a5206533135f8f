#include "core/outcome.hpp"

namespace idem::core {
namespace {

constexpr bool stand_where_they_are_looked_up() noexcept {
    for (const OutcomeEntry& entry : kOutcomes) {
        if (&entry_of(entry.outcome) != &entry) return false;
    }
    for (const ExecutionEntry& entry : kExecutions) {
        if (&entry_of(entry.execution) != &entry) return false;
    }
    return true;
}
static_assert(stand_where_they_are_looked_up());

constexpr const OutcomeEntry* find_outcome(std::string_view word) noexcept {
    for (const OutcomeEntry& entry : kOutcomes) {
        if (entry.word == word) return &entry;
    }
    return nullptr;
}

}  // namespace

const StatusEntry& entry_of(Status status) noexcept {
    for (const StatusEntry& entry : kStatuses) {
        if (entry.status == status) return entry;
    }
    return entry_of(Status::Unknown);
}

std::optional<Outcome> outcome_from_word(std::string_view word) noexcept {
    const OutcomeEntry* entry = find_outcome(word);
    return entry != nullptr ? std::optional(entry->outcome) : std::nullopt;
}

// A record that is only looked at has the document that a repeat would be told.
std::string_view problem_word(const ClaimWords& claim) noexcept {
    std::string_view outcome = claim.outcome;
    for (const StatusEntry& entry : kStatuses) {
        if (outcome.empty() && entry.word == claim.status) outcome = outcome_word(entry.repeat);
    }
    const OutcomeEntry* entry = find_outcome(outcome);
    const bool answers = entry != nullptr && !entry->problem;
    return answers && claim.status == "failed" && !claim.has_status_code ? "failed" : outcome;
}

const Problem* problem_of(std::string_view outcome_word, bool* known) noexcept {
    for (const WordProblem& entry : kOtherProblems) {
        if (entry.word != outcome_word) continue;
        *known = true;
        return &entry.problem;
    }
    const OutcomeEntry* entry = find_outcome(outcome_word);
    *known = entry != nullptr;
    return entry != nullptr && entry->problem ? &*entry->problem : nullptr;
}

}  // namespace idem::core
