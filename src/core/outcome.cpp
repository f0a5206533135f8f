#include "core/outcome.hpp"

#include <utility>

namespace idem::core {
namespace {

// Whether the type of `Value` has an enumerator of that value: the compiler writes a value without
// a name as a cast, "(Enum)7".
template <auto Value>
constexpr bool has_name() noexcept {
    return std::string_view(__PRETTY_FUNCTION__).find("= (") == std::string_view::npos;
}

template <typename Enum, std::size_t... Value>
constexpr std::size_t names_among(std::index_sequence<Value...>) noexcept {
    return (std::size_t{has_name<static_cast<Enum>(Value)>()} + ...);
}

template <typename Enum>
constexpr std::size_t names_of() noexcept {
    return names_among<Enum>(std::make_index_sequence<128>());
}
// Neither all nor none of them.
static_assert(has_name<Status::Unknown>() && !has_name<static_cast<Status>('?')>());

// A table has as many entries as its type, and each entry is found again by its place or its value.
template <typename Entry, std::size_t size, typename Enum>
constexpr bool is_whole(const Entry (&table)[size], Enum Entry::*of) noexcept {
    for (const Entry& entry : table) {
        if (&entry_of(entry.*of) != &entry) return false;
    }
    return size == names_of<Enum>();
}

static_assert(is_whole(kCounters, &CounterEntry::counter));
static_assert(is_whole(kOutcomes, &OutcomeEntry::outcome));
static_assert(is_whole(kExecutions, &ExecutionEntry::execution));
static_assert(is_whole(kReasons, &ReasonEntry::reason));
static_assert(is_whole(kStatuses, &StatusEntry::status));
static_assert(is_whole(kResolutions, &ResolutionEntry::resolution));
static_assert(entry_of(static_cast<Status>('?')).status == Status::Unknown);

constexpr const OutcomeEntry* find_outcome(std::string_view word) noexcept {
    for (const OutcomeEntry& entry : kOutcomes) {
        if (entry.word == word) return &entry;
    }
    return nullptr;
}

}  // namespace

// For a record that is only looked at: the document that a repeat would get.
std::string_view problem_word(const ClaimWords& claim) noexcept {
    std::string_view outcome = claim.outcome;
    for (const StatusEntry& entry : kStatuses) {
        if (outcome.empty() && entry.word == claim.status) outcome = entry_of(entry.repeat).word;
    }
    const OutcomeEntry* entry = find_outcome(outcome);
    const bool answers = entry != nullptr && !entry->problem;
    constexpr std::string_view kFailed = entry_of(Status::Failed).word;
    return answers && claim.status == kFailed && !claim.has_status_code ? kFailed : outcome;
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
