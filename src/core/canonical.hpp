// The pieces of the canonical form of JSON: RFC 8785, except that no digit of a number is ever
// lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace idem::core {

// Whether `a` sorts before `b` by UTF-16 code units, the order RFC 8785 asks for. Both are
// well-formed UTF-8.
bool utf16_less(std::string_view a, std::string_view b) noexcept;

// How many bytes at the head of a string stand for themselves between its quotes.
std::size_t plain_length(std::string_view text) noexcept;

inline constexpr std::size_t kLongestEscape = 6;

// Writes what stands for a byte that plain_length() stops at. Answers its length.
std::size_t spell_escape(char c, char* out) noexcept;

// +/- d.ddd * 10^exponent, the first of the decimal digits being that before the point. Zeros may
// stand at both ends.
struct Decimal {
    bool negative;
    std::string_view digits;
    std::int64_t exponent;
};

// A number takes no more than this beside its digits, however large its exponent.
inline constexpr std::size_t kNumberOverhead = 32;

// Writes a number as ECMAScript does. Answers its length.
std::size_t spell_number(const Decimal& number, char* out) noexcept;

}  // namespace idem::core
