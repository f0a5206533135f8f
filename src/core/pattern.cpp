#include "core/pattern.hpp"

#include "core/key.hpp"

namespace idem::core {
namespace {

constexpr bool is_prefix_pattern(std::string_view pattern) noexcept {
    return !pattern.empty() && pattern.back() == '*';
}

}  // namespace

PatternFault check_pattern(std::string_view pattern, std::size_t chars, bool utf8) noexcept {
    switch (check_label({pattern, chars, utf8})) {
        case NameFault::TooLong:
            return PatternFault::TooLong;
        case NameFault::ControlCharacter:
            return PatternFault::ControlCharacter;
        // A blank pattern fits no scope, which harms nobody.
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
    const std::string_view prefix = pattern.substr(0, pattern.size() - 1);
    return scope.substr(0, prefix.size()) == prefix ? pattern.size() : 0;
}

std::size_t cover_rank(std::string_view pattern, std::string_view narrow) noexcept {
    if (!is_prefix_pattern(narrow)) return pattern_rank(pattern, narrow);
    if (!is_prefix_pattern(pattern)) return 0;
    return pattern_rank(pattern, narrow.substr(0, narrow.size() - 1));
}

}  // namespace idem::core
