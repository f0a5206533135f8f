// Texts in the forms of the database: bytes, arrays, UTF-8.
#pragma once

#include <openssl/evp.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace idempotency {

// Bytes in the server's spelling: \x and two hexadecimal digits each. libpqxx has its own types for
// them, but different ones in each major version.
inline std::string to_bytea(std::string_view bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text = "\\x";
    text.reserve(2 + 2 * bytes.size());
    for (const unsigned char byte : bytes) {
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

// A bytea in either form that bytea_output chooses. Throws std::invalid_argument for other texts.
inline std::string from_bytea(std::string_view text) {
    const bool hex = text.substr(0, 2) == "\\x";
    const auto digit_at = [&](std::size_t i) {
        const char digit = i < text.size() ? text[i] : ' ';
        if (digit >= '0' && digit <= (hex ? '9' : '7')) return digit - '0';
        if (hex && digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
        throw std::invalid_argument("not a digit of bytea");
    };
    std::string bytes;
    bytes.reserve(text.size() / (hex ? 2 : 1));
    for (std::size_t i = hex ? 2 : 0; i < text.size();) {
        if (hex) {
            bytes += static_cast<char>(digit_at(i) << 4 | digit_at(i + 1));
            i += 2;
        } else if (text[i] != '\\') {
            bytes += text[i++];
        } else if (text.substr(i, 2) == "\\\\") {
            bytes += '\\';
            i += 2;
        } else {
            bytes +=
                static_cast<char>(digit_at(i + 1) << 6 | digit_at(i + 2) << 3 | digit_at(i + 3));
            i += 4;
        }
    }
    return bytes;
}

// A text[].
inline std::string to_array(const std::vector<std::string>& texts) {
    std::string array = "{";
    for (const auto& text : texts) {
        array += array.size() > 1 ? ",\"" : "\"";
        for (const char c : text) {
            if (c == '"' || c == '\\') array += '\\';
            array += c;
        }
        array += '"';
    }
    return array + "}";
}

// Refuses overlong forms, surrogates, code points beyond Unicode, and NUL.
inline bool is_utf8(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
        const auto at = [&](std::size_t k) { return static_cast<unsigned char>(text[i + k]); };
        const unsigned lead = at(0);
        const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        if (lead == 0 || (lead >= 0x80 && lead < 0xC2) || lead > 0xF4) return false;
        if (text.size() - i < length) return false;
        for (std::size_t k = 1; k < length; ++k) {
            if ((at(k) & 0xC0) != 0x80) return false;
        }
        const bool odd = (lead == 0xE0 && at(1) < 0xA0) || (lead == 0xED && at(1) > 0x9F) ||
                         (lead == 0xF0 && at(1) < 0x90) || (lead == 0xF4 && at(1) > 0x8F);
        if (odd) return false;
        i += length;
    }
    return true;
}

inline std::string sha256(std::string_view bytes) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    if (EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr) != 1) {
        throw std::runtime_error("SHA-256 failed");
    }
    return std::string(reinterpret_cast<const char*>(digest), length);
}

// docs/fingerprint.md.
inline std::string digest_of_parts(const std::vector<std::optional<std::string>>& parts) {
    std::string text = "idempotency fingerprint 1\n";
    for (const auto& part : parts) {
        text += part ? std::to_string(part->size()) + ':' + *part : "-";
        text += '\n';
    }
    return sha256(text);
}

// A part that is missing, where it is empty.
inline std::optional<std::string> unless_empty(std::string_view text) {
    return text.empty() ? std::nullopt : std::make_optional<std::string>(text);
}

// The fingerprint of a request whose body counts byte by byte. It may have no media type.
inline std::string digest_of_bytes(std::string_view method, std::string_view target,
                                   std::string_view type, std::string_view body) {
    return digest_of_parts(
        {std::string(method), std::string(target), unless_empty(type), std::string(body)});
}

}  // namespace idempotency
