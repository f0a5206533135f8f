// Control characters, which no name and no header's value may have.
#pragma once

#include <string_view>

namespace idem::core {

// C0, DELETE and, where the bytes are UTF-8, C1: U+0080 to U+009F are C2 80 to C2 9F. C2 only ever
// leads a character there, so looking at neighbouring bytes is enough. `allowed` may be there; NUL
// allows none.
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

}  // namespace idem::core
