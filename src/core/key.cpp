#include "core/key.hpp"

#include <algorithm>

namespace idem::core {
namespace {

constexpr char kSeparator = ':';
constexpr char kEscape = '\\';

constexpr bool needs_escape(char c) noexcept {
    return c == kSeparator || c == kEscape;
}

constexpr bool is_prefix_pattern(std::string_view pattern) noexcept {
    return !pattern.empty() && pattern.back() == '*';
}

}  // namespace

NameFault check_key(const Name& key) noexcept {
    return key.bytes.empty() ? NameFault::Empty : check_label(key);
}

NameFault check_label(const Name& label) noexcept {
    if (label.bytes.empty()) return NameFault::None;
    if (label.chars > kMaxNameChars) return NameFault::TooLong;
    if (has_control_character(label.bytes, label.utf8)) return NameFault::ControlCharacter;
    const bool blank = label.bytes.find_first_not_of(' ') == std::string_view::npos;
    return blank ? NameFault::Blank : NameFault::None;
}

std::size_t joined_size(const std::string_view* parts, std::size_t count) noexcept {
    std::size_t size = count > 0 ? count - 1 : 0;
    for (std::size_t i = 0; i < count; ++i) {
        const auto escapes = std::count_if(parts[i].begin(), parts[i].end(), needs_escape);
        size += parts[i].size() + static_cast<std::size_t>(escapes);
    }
    return size;
}

// Works on bytes, so the text's encoding must be one in which ':' and '\' never occur inside a
// character; every encoding that a PostgreSQL database can have is.
void join_parts(const std::string_view* parts, std::size_t count, char* out) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        if (i > 0) *out++ = kSeparator;
        for (const char c : parts[i]) {
            if (needs_escape(c)) *out++ = kEscape;
            *out++ = c;
        }
    }
}

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
