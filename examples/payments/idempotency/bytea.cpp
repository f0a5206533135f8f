#include "bytea.hpp"

#include <stdexcept>

namespace idempotency {

namespace {

constexpr char kDigits[] = "0123456789abcdef";

unsigned value_of(char digit) {
    if (digit >= '0' && digit <= '9') return static_cast<unsigned>(digit - '0');
    if (digit >= 'a' && digit <= 'f') return static_cast<unsigned>(digit - 'a' + 10);
    throw std::invalid_argument("not a hexadecimal digit");
}

}  // namespace

std::string to_bytea(const std::string& bytes) {
    std::string text = "\\x";
    text.reserve(2 + 2 * bytes.size());
    for (const unsigned char byte : bytes) {
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

std::string from_bytea(const std::string& text) {
    if (text.compare(0, 2, "\\x") != 0 || text.size() % 2 != 0)
        throw std::invalid_argument("not bytea's hexadecimal form");
    std::string bytes;
    bytes.reserve(text.size() / 2);
    for (std::size_t i = 2; i < text.size(); i += 2)
        bytes += static_cast<char>(value_of(text[i]) << 4 | value_of(text[i + 1]));
    return bytes;
}

}  // namespace idempotency
