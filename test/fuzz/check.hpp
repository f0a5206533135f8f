// Shared by the fuzz targets: the report of a broken property, and text as the C library sees it.
#pragma once

#include <clocale>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace idem::fuzz {

// Aborts, so that the fuzzer keeps the input. Not assert(), which release builds omit.
inline void check(bool holds, const char* property) {
    if (holds) return;
    std::fprintf(stderr, "broken property: %s\n", property);
    std::abort();
}

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

// A copy of exactly its size on the heap, past whose end the address sanitizer sees every access.
inline std::vector<char> on_heap(std::string_view text) {
    return {text.begin(), text.end()};
}

// The text up to the separator, which is cut off `rest` along with it.
inline std::string_view cut(std::string_view& rest, char separator) {
    const std::size_t end = rest.find(separator);
    const std::string_view head = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    return head;
}

// At least one part; empty text is one empty part.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    std::size_t end = 0;
    do {
        end = text.find(separator);
        parts.push_back(text.substr(0, end));
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    } while (end != std::string_view::npos);
    return parts;
}

// UTF-8 as the C library decodes it, which shares no code with ours; nothing if it is malformed.
inline std::optional<std::u32string> decoded(std::string_view text) {
    static const char* const locale = std::setlocale(LC_CTYPE, "C.UTF-8");
    check(locale != nullptr, "the locale C.UTF-8 exists");
    std::u32string out;
    std::mbstate_t state{};
    while (!text.empty()) {
        wchar_t character = 0;
        const std::size_t length = std::mbrtowc(&character, text.data(), text.size(), &state);
        if (length > text.size()) return std::nullopt;
        out.push_back(static_cast<char32_t>(character));
        text.remove_prefix(length > 0 ? length : 1);  // 0 stands for a NUL, which takes a byte
    }
    return out;
}

}  // namespace idem::fuzz
