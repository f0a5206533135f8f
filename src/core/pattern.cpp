#include "core/pattern.hpp"

#include <algorithm>

#include "core/key.hpp"

namespace idem::core {
namespace {

constexpr bool is_prefix_pattern(std::string_view pattern) noexcept {
    return !pattern.empty() && pattern.back() == '*';
}

constexpr std::string_view prefix_of(std::string_view pattern) noexcept {
    return pattern.substr(0, pattern.size() - 1);
}

constexpr bool begins_with(std::string_view text, std::string_view prefix) noexcept {
    return text.substr(0, prefix.size()) == prefix;
}

}  // namespace

PatternFault check_pattern(std::string_view pattern, std::size_t chars, bool utf8) noexcept {
    switch (check_label({pattern, chars, utf8})) {
        case NameFault::TooLong:
            return PatternFault::TooLong;
        case NameFault::ControlCharacter:
            return PatternFault::ControlCharacter;
        // A blank pattern is harmless: it fits no scope.
        case NameFault::None:
        case NameFault::Empty:
        case NameFault::Blank:
            break;
    }
    const std::size_t star = pattern.find('*');
    const bool inner = star != std::string_view::npos && star + 1 != pattern.size();
    return inner ? PatternFault::InnerStar : PatternFault::None;
}

std::string_view pattern_reach(std::string_view pattern) noexcept {
    const std::size_t star = pattern.find('*');
    return star == std::string_view::npos ? pattern : pattern.substr(0, star + 1);
}

std::size_t pattern_rank(std::string_view pattern, std::string_view scope) noexcept {
    if (!is_prefix_pattern(pattern)) {
        // The longest prefix pattern that fits is the whole scope and a star: size() + 1.
        return pattern == scope ? scope.size() + 2 : 0;
    }
    return begins_with(scope, prefix_of(pattern)) ? pattern.size() : 0;
}

std::size_t cover_rank(std::string_view pattern, std::string_view narrow) noexcept {
    if (!is_prefix_pattern(narrow)) return pattern_rank(pattern, narrow);
    if (!is_prefix_pattern(pattern)) return 0;
    return pattern_rank(pattern, prefix_of(narrow));
}

// ---- many patterns ----

namespace {

// Exact patterns first, then prefixes without their stars, each sorted by bytes: a prefix stands
// before every text that begins with it.
struct Place {
    bool prefix;
    std::string_view bytes;
};

Place place_of(const Reach& reach) noexcept {
    const bool prefix = is_prefix_pattern(reach.pattern);
    return {prefix, prefix ? prefix_of(reach.pattern) : reach.pattern};
}

bool is_before(const Place& a, const Place& b) noexcept {
    return a.prefix != b.prefix ? b.prefix : a.bytes < b.bytes;
}

// The last entry at or before that place, or kNoReach.
std::size_t last_until(const Reach* reaches, std::size_t count, const Place& place) noexcept {
    const Reach* end = std::upper_bound(
        reaches, reaches + count, place,
        [](const Place& sought, const Reach& reach) { return is_before(sought, place_of(reach)); });
    return static_cast<std::size_t>(end - reaches) - 1;  // kNoReach is one before the first
}

bool is_at(const Reach* reaches, std::size_t at, const Place& place) noexcept {
    if (at == kNoReach) return false;
    const Place its = place_of(reaches[at]);
    return its.prefix == place.prefix && its.bytes == place.bytes;
}

// Walks from one prefix to its outer ones, up to the first that the text begins with. Every entry
// between a prefix of the text and the text itself begins with that prefix, too. So a walk from the
// last one before the text passes each prefix that fits.
std::size_t first_around(const Reach* reaches, std::size_t at, std::string_view text) noexcept {
    while (at != kNoReach && !(is_prefix_pattern(reaches[at].pattern) &&
                               begins_with(text, prefix_of(reaches[at].pattern))))
        at = reaches[at].outer;
    return at;
}

}  // namespace

void order_reaches(Reach* reaches, std::size_t count) noexcept {
    std::sort(reaches, reaches + count,
              [](const Reach& a, const Reach& b) { return is_before(place_of(a), place_of(b)); });
    for (std::size_t i = 0; i < count; ++i) {
        const bool again = i > 0 && reaches[i].pattern == reaches[i - 1].pattern;
        reaches[i].twice = again;
        reaches[i].outer = kNoReach;
        if (again) {
            reaches[i - 1].twice = true;
            reaches[i].outer = reaches[i - 1].outer;
        } else if (i > 0 && is_prefix_pattern(reaches[i].pattern)) {
            reaches[i].outer = first_around(reaches, i - 1, prefix_of(reaches[i].pattern));
        }
    }
}

std::size_t best_reach(const Reach* reaches, std::size_t count, std::string_view scope) noexcept {
    const std::size_t exact = last_until(reaches, count, {false, scope});
    if (is_at(reaches, exact, {false, scope})) return exact;
    return first_around(reaches, last_until(reaches, count, {true, scope}), scope);
}

}  // namespace idem::core
