// What may be a key, a scope or a principal, and how keys are composed from parts.
#pragma once

#include <cstddef>
#include <string_view>

namespace idem::core {

// Longest key, scope and principal, in characters (not bytes).
inline constexpr std::size_t kMaxNameChars = 255;

enum class NameFault { None, Empty, Blank, TooLong, ControlCharacter };

// A text as the caller gave it, with its length in characters of its own encoding. `utf8` says
// whether the bytes are UTF-8, so that the C1 control characters can be told from letters.
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
// that different lists never give the same key; only no part and one empty part both give the empty
// text, which is no key. `out` has room for joined_size() bytes.
void join_parts(const std::string_view* parts, std::size_t count, char* out) noexcept;

}  // namespace idem::core
