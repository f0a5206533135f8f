// The pieces of the canonical form: a number keeps its value and has one spelling, a string comes
// back from its escapes, and names have the order of UTF-16. The input is one text, taken for each.
#include <algorithm>

#include "check.hpp"
#include "core/fingerprint.hpp"

namespace {

using namespace idem;
using fuzz::check;

constexpr std::size_t kMostZeros = 300;

std::string spelled(const core::Decimal& number) {
    std::vector<char> out(number.digits.size() + core::kNumberOverhead);
    return {out.data(), core::spell_number(number, out.data())};
}

std::string only_digits(std::string_view text) {
    std::string out;
    std::copy_if(text.begin(), text.end(), std::back_inserter(out),
                 [](char c) { return c >= '0' && c <= '9'; });
    return out;
}

// Reading a number as a double shares no code with formatting its digits.
void check_value(const core::Decimal& number, const std::string& form) {
    const std::string digits(number.digits);
    const std::string written =
        (number.negative ? "-" : "") + digits + "e" +
        std::to_string(number.exponent + 1 - static_cast<std::int64_t>(digits.size()));
    check(std::strtod(written.c_str(), nullptr) == std::strtod(form.c_str(), nullptr),
          "a number keeps its value");
}

// Zeros at the ends are notation.
void check_zeros(const core::Decimal& number, const std::string& form, std::size_t zeros) {
    const std::string padded = std::string(zeros, '0') + std::string(number.digits) + "00";
    const auto shift = static_cast<std::int64_t>(zeros);
    check(spelled({number.negative, padded, number.exponent + shift}) == form,
          "one number has one form");
}

void check_number(std::string_view text) {
    if (text.size() < 2) return;
    const std::string digits = only_digits(text);
    if (digits.empty()) return;
    const core::Decimal number{text[0] < 0, digits, static_cast<signed char>(text[1]) * 3};
    const std::string form = spelled(number);
    check(form.size() <= digits.size() + core::kNumberOverhead, "an exponent is not written out");
    check_value(number, form);
    check_zeros(number, form, static_cast<unsigned char>(text[1]) % kMostZeros);
}

// The character that an escape stands for, by the grammar of RFC 8259.
char meaning(std::string_view escape) {
    constexpr std::string_view kLetters = "\"\\bfnrt";
    constexpr std::string_view kMeanings = "\"\\\b\f\n\r\t";
    check(escape.size() >= 2 && escape[0] == '\\', "an escape begins with a backslash");
    if (escape[1] != 'u') {
        const std::size_t which = kLetters.find(escape[1]);
        check(which != std::string_view::npos && escape.size() == 2,
              "a short escape is one of JSON's");
        return kMeanings[which];
    }
    check(escape.size() == 6, "a long escape has four digits");
    return static_cast<char>(std::stoi(std::string(escape.substr(2)), nullptr, 16));
}

void check_string(std::string_view text) {
    std::string back;
    while (!text.empty()) {
        const std::size_t plain = core::plain_length(text);
        back += text.substr(0, plain);
        if (plain == text.size()) break;
        char escape[core::kLongestEscape];
        const std::size_t length = core::spell_escape(text[plain], escape);
        check(meaning({escape, length}) == text[plain], "an escape stands for its character");
        text.remove_prefix(plain + 1);
    }
}

std::u16string as_utf16(const std::u32string& characters) {
    std::u16string out;
    for (const char32_t c : characters) {
        if (c >= 0x10000) out += static_cast<char16_t>(0xD800 + ((c - 0x10000) >> 10));
        out += static_cast<char16_t>(c < 0x10000 ? c : 0xDC00 + ((c - 0x10000) & 0x3FF));
    }
    return out;
}

void check_order(std::string_view text) {
    const std::vector<std::string_view> names = fuzz::split(text, '\n');
    for (std::size_t i = 1; i < names.size(); ++i) {
        const auto a = fuzz::decoded(names[i - 1]);
        const auto b = fuzz::decoded(names[i]);
        if (!a || !b) continue;
        check(core::utf16_less(names[i - 1], names[i]) == (as_utf16(*a) < as_utf16(*b)),
              "names have the order of UTF-16");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::vector<char> bytes = fuzz::on_heap(fuzz::as_text(data, size));
    const std::string_view text(bytes.data(), bytes.size());
    check_number(text);
    check_string(text);
    check_order(text);
    return 0;
}
