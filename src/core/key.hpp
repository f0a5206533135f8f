// The rules of keys, scopes and principals, and how keys are composed from parts.
#pragma once

#include <cstddef>
#include <string_view>

namespace idem::core {

// Whether there is a character that no name and no header's value may have: C0, DELETE and, where
// the bytes are UTF-8, C1. U+0080 to U+009F are C2 80 to C2 9F, and C2 only ever leads a character,
// so looking at neighbouring bytes is enough. `allowed` may be there; NUL allows none.
constexpr bool has_control_character(std::string_view bytes, bool utf8,
                                     char allowed = '\0') noexcept {
    unsigned char previous = 0;
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        const bool c0_or_delete = byte < 0x20 || byte == 0x7f;
        const bool c1 = utf8 && previous == 0xc2 && byte >= 0x80 && byte <= 0x9f;
        if (c1 || (c0_or_delete && (c != allowed || c == '\0'))) return true;
        previous = byte;
    }
    return false;
}

// ---- keys, scopes and principals ----

// Longest key, scope and principal, in characters (not bytes).
inline constexpr std::size_t kMaxNameChars = 255;
// Their longest length in bytes, in any encoding that a database can have.
inline constexpr std::size_t kMaxNameBytes = 4 * kMaxNameChars;

enum class NameFault { None, Empty, Blank, TooLong, ControlCharacter };

// A text as the caller gave it, with its length in characters of its own encoding. `utf8` says
// whether the bytes are UTF-8: then C1 control characters can be distinguished from letters.
struct Name {
    std::string_view bytes;
    std::size_t chars;
    bool utf8;
};

// A key: 1 to 255 characters, none of them a control character, not only spaces.
NameFault check_key(const Name& key) noexcept;

// A scope or principal: like a key, but may be empty.
NameFault check_label(const Name& label) noexcept;

// Bytes that join_parts needs for these parts.
std::size_t joined_size(const std::string_view* parts, std::size_t count) noexcept;

// Writes the parts separated by ':' into `out`, with '\' before each ':' and '\' inside a part, so
// that different lists give different keys. The one exception: no part and one empty part both give
// the empty text, which is not a key. `out` has room for joined_size() bytes.
void join_parts(const std::string_view* parts, std::size_t count, char* out) noexcept;

}  // namespace idem::core
