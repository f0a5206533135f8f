// Scope patterns of policies: an exact scope, or a prefix ending in '*'. Which scopes a pattern
// fits, and which of many fits a scope best.
#pragma once

#include <cstddef>
#include <string_view>

namespace idem::core {

enum class PatternFault { None, TooLong, ControlCharacter, InnerStar };

PatternFault check_pattern(std::string_view pattern, std::size_t chars, bool utf8) noexcept;

// What a pattern that check_pattern() would refuse is taken for, so that it covers no less than was
// meant: all scopes that begin like it, up to its first '*'. Other patterns are what they are.
std::string_view pattern_reach(std::string_view pattern) noexcept;

// How well a pattern fits a scope: 0 not at all, larger is more specific, an exact match above any
// prefix. '*' alone fits everything.
std::size_t pattern_rank(std::string_view pattern, std::string_view scope) noexcept;

// The same for all scopes that `narrow` fits: 0 if the pattern does not fit each of them.
std::size_t cover_rank(std::string_view pattern, std::string_view narrow) noexcept;

// ---- many patterns ----

// One of many, as far as it reaches. Whose it is only its owner knows.
struct Reach {
    std::string_view pattern;  // pattern_reach()
    std::size_t owner;
    bool twice;         // another one reaches exactly as far
    std::size_t outer;  // where the longest prefix pattern is that fits whatever this one fits
};

inline constexpr std::size_t kNoReach = static_cast<std::size_t>(-1);

// Puts them in the order that best_reach() wants, and says where each is `twice` and what is its
// `outer` one. `pattern` and `owner` are the caller's.
void order_reaches(Reach* reaches, std::size_t count) noexcept;

// Which of them has the highest pattern_rank() for the scope, or kNoReach: one search, and as many
// steps as prefixes lie within each other at the place where it ends.
std::size_t best_reach(const Reach* reaches, std::size_t count, std::string_view scope) noexcept;

}  // namespace idem::core
