// Scope patterns of policies: an exact scope, or a prefix ending in '*'. Which scopes a pattern
// fits, and which of many patterns fits a scope best.
#pragma once

#include <cstddef>
#include <string_view>

namespace idem::core {

enum class PatternFault { None, TooLong, ControlCharacter, InnerStar };

PatternFault check_pattern(std::string_view pattern, std::size_t chars, bool utf8) noexcept;

// How a pattern that check_pattern() would refuse is read: as all scopes that begin like it, up to
// its first '*', so that it covers no less than was meant. Other patterns are returned unchanged.
std::string_view pattern_reach(std::string_view pattern) noexcept;

// How well a pattern fits a scope: 0 not at all, larger is more specific, an exact match above any
// prefix. '*' alone fits everything.
std::size_t pattern_rank(std::string_view pattern, std::string_view scope) noexcept;

// The rank for all scopes that `narrow` fits: 0 if the pattern does not fit each of them.
std::size_t cover_rank(std::string_view pattern, std::string_view narrow) noexcept;

// ---- many patterns ----

// One pattern of many. Only the caller knows the meaning of `owner`.
struct Reach {
    std::string_view pattern;  // pattern_reach()
    std::size_t owner;
    bool twice;         // another pattern reaches exactly as far
    std::size_t outer;  // the longest other prefix pattern that fits every scope this one fits
};

inline constexpr std::size_t kNoReach = static_cast<std::size_t>(-1);

// Sorts them for best_reach(), and sets `twice` and `outer` of each. `pattern` and `owner` are the
// caller's.
void order_reaches(Reach* reaches, std::size_t count) noexcept;

// The pattern with the highest pattern_rank() for the scope, or kNoReach. Costs one search, and one
// step for each prefix nested at the place where it ends.
std::size_t best_reach(const Reach* reaches, std::size_t count, std::string_view scope) noexcept;

}  // namespace idem::core
