// Numbers are never turned into floating point. Their decimal digits are laid out by the rules of
// ECMAScript's Number::toString, which RFC 8785 prescribes. For a number written with the shortest
// digits that identify its double, such as 0.1 or 1e30, that is RFC 8785 to the byte. Any other
// keeps its digits where RFC 8785 would round them, so different numbers never become equal.

#include "core/canonical.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace idem::core {
namespace {

// Strings are looked at by words: they are most of what a request consists of.
using Word = std::uint64_t;
constexpr std::size_t kWord = sizeof(Word);
constexpr Word kOnes = ~Word{0} / 255;  // one in each byte

Word word_at(const char* text) {
    Word word;
    std::memcpy(&word, text, kWord);
    return word;
}

// Whether a byte of `word` is less than `limit`, which is at most 128.
bool has_less(Word word, unsigned char limit) {
    return ((word - kOnes * limit) & ~word & kOnes * 0x80) != 0;
}

bool has_byte(Word word, char c) {
    return has_less(word ^ kOnes * static_cast<unsigned char>(c), 1);
}

bool stands_for_itself(char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\';
}

bool all_stand_for_themselves(Word word) {
    return !has_less(word, 0x20) && !has_byte(word, '"') && !has_byte(word, '\\');
}

std::size_t first_difference(const char* a, const char* b, std::size_t length) {
    std::size_t at = 0;
    while (at + kWord <= length && word_at(a + at) == word_at(b + at)) at += kWord;
    while (at < length && a[at] == b[at]) ++at;
    return at;
}

// Without the zeros at both ends. No digits: zero.
Decimal trimmed(Decimal number) {
    const std::size_t zeros = std::min(number.digits.find_first_not_of('0'), number.digits.size());
    number.digits.remove_prefix(zeros);
    number.exponent -= static_cast<std::int64_t>(zeros);
    number.digits = number.digits.substr(0, number.digits.find_last_not_of('0') + 1);
    return number;
}

char* put(char* out, std::string_view text) {
    return std::copy(text.begin(), text.end(), out);
}

// Up to 21 digits before the point.
char* put_positional(const Decimal& number, char* out) {
    const std::size_t whole = static_cast<std::size_t>(number.exponent) + 1;
    if (number.digits.size() <= whole)
        return std::fill_n(put(out, number.digits), whole - number.digits.size(), '0');
    out = put(out, number.digits.substr(0, whole));
    *out++ = '.';
    return put(out, number.digits.substr(whole));
}

// 0.000001 is the smallest power of ten written like this.
char* put_fraction(const Decimal& number, char* out) {
    out = put(out, "0.");
    out = std::fill_n(out, static_cast<std::size_t>(-number.exponent - 1), '0');
    return put(out, number.digits);
}

char* put_scientific(const Decimal& number, char* out) {
    *out++ = number.digits.front();
    if (number.digits.size() > 1) {
        *out++ = '.';
        out = put(out, number.digits.substr(1));
    }
    out = put(out, number.exponent < 0 ? "e" : "e+");
    constexpr std::size_t kLongest = 20;  // of 64 bits, with a sign
    return std::to_chars(out, out + kLongest, number.exponent).ptr;
}

char* put_number(const Decimal& number, char* out) {
    if (number.digits.empty()) return put(out, "0");  // -0 is 0
    if (number.negative) *out++ = '-';
    if (number.exponent >= 0 && number.exponent <= 20) return put_positional(number, out);
    if (number.exponent >= -6 && number.exponent < 0) return put_fraction(number, out);
    return put_scientific(number, out);
}

}  // namespace

// UTF-8 sorts by code point. UTF-16 does too, but for one thing: its surrogates, which are the
// four-byte sequences (lead F0 to F4), come before U+E000 to U+FFFF (lead EE and EF).
bool utf16_less(std::string_view a, std::string_view b) noexcept {
    const std::size_t length = std::min(a.size(), b.size());
    const std::size_t at = first_difference(a.data(), b.data(), length);
    if (at == length) return a.size() < b.size();
    const auto rank = [](char c) {
        const unsigned byte = static_cast<unsigned char>(c);
        return byte == 0xEE || byte == 0xEF ? byte + 0x10 : byte;
    };
    return rank(a[at]) < rank(b[at]);
}

std::size_t plain_length(std::string_view text) noexcept {
    const char* bytes = text.data();
    std::size_t at = 0;
    while (at + kWord <= text.size() && all_stand_for_themselves(word_at(bytes + at))) at += kWord;
    while (at < text.size() && stands_for_itself(bytes[at])) ++at;
    return at;
}

std::size_t spell_escape(char c, char* out) noexcept {
    constexpr std::string_view kMeanings = "\"\\\b\f\n\r\t";
    constexpr std::string_view kLetters = "\"\\bfnrt";
    constexpr std::string_view kHex = "0123456789abcdef";
    *out++ = '\\';
    const std::size_t which = kMeanings.find(c);
    if (which != std::string_view::npos) {
        *out = kLetters[which];
        return 2;
    }
    out = put(out, "u00");
    *out++ = kHex[static_cast<unsigned char>(c) >> 4];
    *out = kHex[static_cast<unsigned char>(c) & 0xF];
    return kLongestEscape;
}

std::size_t spell_number(const Decimal& number, char* out) noexcept {
    return static_cast<std::size_t>(put_number(trimmed(number), out) - out);
}

}  // namespace idem::core
