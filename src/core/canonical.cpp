// Numbers are never turned into floating point. Their decimal digits are laid out by the rules of
// ECMAScript's Number::toString, which RFC 8785 prescribes. For a number written with the shortest
// digits that identify its double, such as 0.1 or 1e30, that is RFC 8785 to the byte. Any other
// keeps its digits where RFC 8785 would round them, so different numbers never become equal.

#include "core/canonical.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace idem::core {
namespace {

// d.ddd * 10^exponent: the first digit is not zero, and neither is the last. No digits: zero.
struct Decimal {
    bool negative;
    std::string digits;
    std::int64_t exponent;
};

// The written exponent, `text` being what follows the 'e'. False if it does not fit.
bool read_exponent(std::string_view text, std::int64_t& out) {
    if (text.front() == '+') text.remove_prefix(1);
    return std::from_chars(text.data(), text.data() + text.size(), out).ec == std::errc();
}

// `text` is a number by the grammar of JSON. False if its exponent does not fit.
bool read_decimal(std::string_view text, Decimal& out) {
    out.negative = text.front() == '-';
    if (out.negative) text.remove_prefix(1);
    const std::string_view mantissa = text.substr(0, text.find_first_of("eE"));
    const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
    out.digits = mantissa.substr(0, point);
    if (point < mantissa.size()) out.digits += mantissa.substr(point + 1);
    const std::size_t zeros = std::min(out.digits.find_first_not_of('0'), out.digits.size());
    out.digits.erase(0, zeros);
    out.digits.erase(out.digits.find_last_not_of('0') + 1);
    out.exponent = 0;
    if (out.digits.empty()) return true;  // zero, whatever its exponent
    std::int64_t written = 0;
    if (mantissa.size() < text.size() && !read_exponent(text.substr(mantissa.size() + 1), written))
        return false;
    const auto shift = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(zeros) - 1;
    return !__builtin_add_overflow(written, shift, &out.exponent);
}

// Up to 21 digits before the point.
void append_positional(const Decimal& number, std::string& out) {
    const std::size_t whole = static_cast<std::size_t>(number.exponent) + 1;
    out.append(number.digits, 0, whole);
    if (number.digits.size() <= whole) {
        out.append(whole - number.digits.size(), '0');
    } else {
        out.push_back('.');
        out.append(number.digits, whole);
    }
}

// 0.000001 is the smallest power of ten written like this.
void append_fraction(const Decimal& number, std::string& out) {
    out += "0.";
    out.append(static_cast<std::size_t>(-number.exponent - 1), '0');
    out += number.digits;
}

void append_scientific(const Decimal& number, std::string& out) {
    out.push_back(number.digits.front());
    if (number.digits.size() > 1) {
        out.push_back('.');
        out.append(number.digits, 1);
    }
    out += number.exponent < 0 ? "e" : "e+";
    out += std::to_string(number.exponent);
}

// Writes one value of any kind; false for a number that can't be written.
class Writer {
  public:
    explicit Writer(std::string& out) : out_(out) {}

    bool operator()(JsonLiteral literal);
    bool operator()(const JsonNumber& number);
    bool operator()(const std::string& text);
    bool operator()(const JsonArray& items);
    bool operator()(const JsonObject& members);

  private:
    void escape(char c);

    std::string& out_;
};

bool Writer::operator()(JsonLiteral literal) {
    constexpr std::string_view kWords[] = {"null", "false", "true"};  // as JsonLiteral counts
    out_ += kWords[static_cast<std::size_t>(literal)];
    return true;
}

bool Writer::operator()(const JsonNumber& number) {
    Decimal decimal;
    if (!read_decimal(number.text, decimal)) return false;
    if (decimal.digits.empty()) {  // -0 is 0
        out_.push_back('0');
        return true;
    }
    if (decimal.negative) out_.push_back('-');
    if (decimal.exponent >= 0 && decimal.exponent <= 20) {
        append_positional(decimal, out_);
    } else if (decimal.exponent >= -6 && decimal.exponent < 0) {
        append_fraction(decimal, out_);
    } else {
        append_scientific(decimal, out_);
    }
    return true;
}

bool Writer::operator()(const std::string& text) {
    out_.push_back('"');
    for (const char c : text) {
        if (static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\') {
            escape(c);
        } else {
            out_.push_back(c);
        }
    }
    out_.push_back('"');
    return true;
}

void Writer::escape(char c) {
    constexpr std::string_view kMeanings = "\"\\\b\f\n\r\t";
    constexpr std::string_view kLetters = "\"\\bfnrt";
    constexpr std::string_view kHex = "0123456789abcdef";
    out_.push_back('\\');
    const std::size_t which = kMeanings.find(c);
    if (which != std::string_view::npos) {
        out_.push_back(kLetters[which]);
        return;
    }
    out_ += "u00";
    out_.push_back(kHex[static_cast<std::size_t>(c) >> 4]);
    out_.push_back(kHex[static_cast<std::size_t>(c) & 0xF]);
}

bool Writer::operator()(const JsonArray& items) {
    out_.push_back('[');
    for (const JsonValue& item : items) {
        if (&item != &items.front()) out_.push_back(',');
        if (!std::visit(*this, item.data)) return false;
    }
    out_.push_back(']');
    return true;
}

// The parser left the members in order.
bool Writer::operator()(const JsonObject& members) {
    out_.push_back('{');
    for (const JsonMember& member : members) {
        if (&member != &members.front()) out_.push_back(',');
        (*this)(member.name);
        out_.push_back(':');
        if (!std::visit(*this, member.value.data)) return false;
    }
    out_.push_back('}');
    return true;
}

}  // namespace

FingerprintFault append_canonical(const JsonValue& value, std::string& out) noexcept try {
    return std::visit(Writer(out), value.data) ? FingerprintFault::None : FingerprintFault::BadJson;
} catch (...) {  // bad_alloc, or length_error from a string that can't grow
    return FingerprintFault::OutOfMemory;
}

}  // namespace idem::core
