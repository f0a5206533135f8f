// Scope patterns of policies: an exact scope, or a prefix ending in '*'.
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

}  // namespace idem::core
