#include "core/key.hpp"

#include <algorithm>

namespace idem::core {
namespace {

constexpr char kSeparator = ':';
constexpr char kEscape = '\\';

constexpr bool needs_escape(char c) noexcept {
    return c == kSeparator || c == kEscape;
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

// Works on bytes, so ':' and '\' must never occur inside a character of the text's encoding. This
// holds for every encoding that a PostgreSQL database can have.
void join_parts(const std::string_view* parts, std::size_t count, char* out) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        if (i > 0) *out++ = kSeparator;
        for (const char c : parts[i]) {
            if (needs_escape(c)) *out++ = kEscape;
            *out++ = c;
        }
    }
}

}  // namespace idem::core
