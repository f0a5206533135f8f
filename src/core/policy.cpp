#include "core/policy.hpp"

#include <algorithm>

namespace idem::core {
namespace {

constexpr std::int64_t sum(std::int64_t moment, std::int64_t span) noexcept {
    std::int64_t result = 0;
    return __builtin_add_overflow(moment, span, &result) ? INT64_MAX : result;
}

// The shortest memory until now.
std::int64_t shortest(const Memory& memory, std::int64_t now) noexcept {
    return past_matters(memory, now) ? std::min(memory.span, memory.before) : memory.span;
}

}  // namespace

int place_of_word(std::string_view word, std::string_view words) noexcept {
    for (int place = 0; !words.empty(); ++place) {
        const std::string_view first = words.substr(0, words.find(','));
        if (first == word) return place;
        words.remove_prefix(std::min(words.size(), first.size() + 2));
    }
    return -1;
}

std::string_view word_at(std::int64_t place, std::string_view words) noexcept {
    for (; place > 0; --place) {
        const std::size_t comma = words.find(',');
        words.remove_prefix(comma == words.npos ? words.size() : comma + 2);
    }
    return words.substr(0, words.find(','));
}

std::int64_t memory_since(const Memory& memory, std::int64_t first_sent) noexcept {
    return first_sent < memory.since ? std::min(memory.span, memory.before) : memory.span;
}

bool past_matters(const Memory& memory, std::int64_t now) noexcept {
    return memory.since != kUnchanged && sum(memory.since, memory.span) > now;
}

Memory with_past(const Memory& memory, const Memory& other) noexcept {
    if (other.since == kUnchanged) return memory;
    if (memory.since == kUnchanged) return {memory.span, other.since, other.before};
    return {memory.span, std::max(memory.since, other.since),
            std::min(memory.before, other.before)};
}

// A shorter memory is shorter than the one before as well, so only one that grows begins a past.
Memory changed_memory(const Memory& old, std::int64_t span, std::int64_t now) noexcept {
    if (span > old.span) return {span, sum(now, kTimeToCommit), shortest(old, now)};
    if (past_matters(old, now)) return {span, old.since, old.before};
    return unchanged_memory(span);
}

}  // namespace idem::core
