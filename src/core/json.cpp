#include "core/json.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace idem::core {
namespace {

// Often enough to cancel a large request within milliseconds, seldom enough to cost nothing.
constexpr std::size_t kValuesPerPoll = 4096;

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// A character of a string that stands for itself and takes one byte.
bool is_plain(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

bool is_high_surrogate(std::uint32_t unit) {
    return unit >= 0xD800 && unit <= 0xDBFF;
}
bool is_low_surrogate(std::uint32_t unit) {
    return unit >= 0xDC00 && unit <= 0xDFFF;
}

// Length of the multi-byte UTF-8 sequence at the head of `bytes`, 0 if there is no well-formed one.
// The second byte's narrower ranges shut out overlong forms, surrogates and all above U+10FFFF.
std::size_t utf8_sequence(std::string_view bytes) {
    const auto byte = [bytes](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
    const unsigned lead = byte(0);
    if (lead < 0xC2 || lead > 0xF4) return 0;
    const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (bytes.size() < length) return 0;
    const unsigned lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(1) < lowest || byte(1) > highest) return 0;
    for (std::size_t i = 2; i < length; ++i) {
        if ((byte(i) & 0xC0) != 0x80) return 0;
    }
    return length;
}

void append_utf8(std::uint32_t code, std::string& out) {
    const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
    const auto put_tail = [&](int shift) { put(0x80 | ((code >> shift) & 0x3F)); };
    if (code < 0x80) return put(code);
    if (code < 0x800) {
        put(0xC0 | (code >> 6));
    } else if (code < 0x10000) {
        put(0xE0 | (code >> 12));
        put_tail(6);
    } else {
        put(0xF0 | (code >> 18));
        put_tail(12);
        put_tail(6);
    }
    put_tail(0);
}

// Brings the members into order and keeps the last of those with the same name. Equal names stand
// in the order of the text, so walking from the back meets the last one first.
void settle(JsonObject& members) {
    const auto less = [](const JsonMember& a, const JsonMember& b) {
        return utf16_less(a.name, b.name);
    };
    const auto same = [](const JsonMember& a, const JsonMember& b) { return a.name == b.name; };
    std::stable_sort(members.begin(), members.end(), less);
    const auto superseded = std::unique(members.rbegin(), members.rend(), same);
    members.erase(members.begin(), superseded.base());
}

// Recursive descent. Each function reads one production at the current position and answers
// whether it was there; `fault_` says why not.
class Parser {
  public:
    Parser(std::string_view text, bool (*interrupted)()) : text_(text), interrupted_(interrupted) {}

    FingerprintFault document(JsonValue& out) {
        if (!value(out)) return fault_;
        skip_space();
        return at_end() ? FingerprintFault::None : FingerprintFault::BadJson;
    }

  private:
    bool value(JsonValue& out);
    bool nested(JsonValue& out, bool (Parser::*production)(JsonValue&));
    bool array(JsonValue& out);
    bool object(JsonValue& out);
    bool member(JsonObject& out);
    bool literal(JsonValue& out, std::string_view word, JsonLiteral meaning);
    bool number(JsonValue& out);
    bool digits();
    bool string(std::string& out);
    void plain_run(std::string& out);
    bool multibyte(std::string& out);
    bool escape(std::string& out);
    bool unicode_escape(std::string& out);
    bool hex4(std::uint32_t& unit);

    bool poll();
    void skip_space();
    bool take(char c);
    bool accept(char c);
    bool at_end() const { return at_ == text_.size(); }
    char peek() const { return at_end() ? '\0' : text_[at_]; }  // a real NUL fits nowhere either
    bool fail(FingerprintFault fault) {
        fault_ = fault;
        return false;
    }

    std::string_view text_;
    bool (*interrupted_)();
    std::size_t at_ = 0;
    std::size_t values_ = 0;
    int depth_ = 0;
    FingerprintFault fault_ = FingerprintFault::BadJson;
};

bool Parser::value(JsonValue& out) {
    if (!poll()) return false;
    skip_space();
    switch (peek()) {
        case '{':
            return nested(out, &Parser::object);
        case '[':
            return nested(out, &Parser::array);
        case '"':
            return string(out.data.emplace<std::string>());
        case 'n':
            return literal(out, "null", JsonLiteral::Null);
        case 'f':
            return literal(out, "false", JsonLiteral::False);
        case 't':
            return literal(out, "true", JsonLiteral::True);
        default:
            return number(out);
    }
}

bool Parser::nested(JsonValue& out, bool (Parser::*production)(JsonValue&)) {
    if (depth_ == kMaxJsonDepth) return fail(FingerprintFault::TooDeep);
    ++depth_;
    ++at_;
    const bool read = (this->*production)(out);
    --depth_;
    return read;
}

bool Parser::array(JsonValue& out) {
    auto& items = out.data.emplace<JsonArray>();
    if (take(']')) return true;
    do {
        if (!value(items.emplace_back())) return false;
    } while (take(','));
    return take(']');
}

bool Parser::object(JsonValue& out) {
    auto& members = out.data.emplace<JsonObject>();
    if (take('}')) return true;
    do {
        if (!member(members)) return false;
    } while (take(','));
    if (!take('}')) return false;
    settle(members);
    return true;
}

bool Parser::member(JsonObject& out) {
    JsonMember& added = out.emplace_back();
    skip_space();
    return string(added.name) && take(':') && value(added.value);
}

bool Parser::literal(JsonValue& out, std::string_view word, JsonLiteral meaning) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    out.data = meaning;
    return true;
}

bool Parser::number(JsonValue& out) {
    const std::size_t start = at_;
    accept('-');
    if (!accept('0') && !digits()) return false;
    if (accept('.') && !digits()) return false;
    if (accept('e') || accept('E')) {
        if (!accept('+')) accept('-');
        if (!digits()) return false;
    }
    out.data = JsonNumber{text_.substr(start, at_ - start)};
    return true;
}

bool Parser::digits() {
    const std::size_t start = at_;
    while (is_digit(peek())) ++at_;
    return at_ > start;
}

bool Parser::string(std::string& out) {
    if (!accept('"')) return false;
    for (;;) {
        plain_run(out);
        if (accept('"')) return true;
        if (!(accept('\\') ? escape(out) : multibyte(out))) return false;
    }
}

void Parser::plain_run(std::string& out) {
    const std::size_t start = at_;
    while (!at_end() && is_plain(text_[at_])) ++at_;
    out.append(text_, start, at_ - start);
}

// Also meets control characters and the end of the text, where there is no such sequence.
bool Parser::multibyte(std::string& out) {
    const std::size_t length = at_end() ? 0 : utf8_sequence(text_.substr(at_));
    out.append(text_, at_, length);
    at_ += length;
    return length > 0;
}

bool Parser::escape(std::string& out) {
    constexpr std::string_view kLetters = "\"\\/bfnrtu";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t which = at_end() ? std::string_view::npos : kLetters.find(text_[at_]);
    if (which == std::string_view::npos) return false;
    ++at_;
    if (which == kMeanings.size()) return unicode_escape(out);
    out.push_back(kMeanings[which]);
    return true;
}

bool Parser::unicode_escape(std::string& out) {
    std::uint32_t code;
    if (!hex4(code) || is_low_surrogate(code)) return false;
    if (is_high_surrogate(code)) {
        std::uint32_t low;
        if (!accept('\\') || !accept('u') || !hex4(low) || !is_low_surrogate(low)) return false;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(code, out);
    return true;
}

bool Parser::hex4(std::uint32_t& unit) {
    unit = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
        const char c = peek();
        const char lower = static_cast<char>(c | 0x20);
        if (is_digit(c)) {
            unit = unit * 16 + static_cast<std::uint32_t>(c - '0');
        } else if (lower >= 'a' && lower <= 'f') {
            unit = unit * 16 + static_cast<std::uint32_t>(lower - 'a' + 10);
        } else {
            return false;
        }
    }
    return true;
}

bool Parser::poll() {
    const bool due = ++values_ % kValuesPerPoll == 0 && interrupted_ != nullptr;
    return due && interrupted_() ? fail(FingerprintFault::Interrupted) : true;
}

void Parser::skip_space() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t') ++at_;
}

// A token, with the white space before it.
bool Parser::take(char c) {
    skip_space();
    return accept(c);
}

// A character, right here.
bool Parser::accept(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
}

}  // namespace

FingerprintFault parse_json(std::string_view text, bool (*interrupted)(), JsonValue& value) noexcept
    try {
    return Parser(text, interrupted).document(value);
} catch (...) {  // bad_alloc, or length_error from a container that can't grow
    return FingerprintFault::OutOfMemory;
}

// UTF-8 sorts by code point. UTF-16 does too, but for one thing: its surrogates, which are the
// four-byte sequences (lead F0 to F4), come before U+E000 to U+FFFF (lead EE and EF).
bool utf16_less(std::string_view a, std::string_view b) noexcept {
    const auto rank = [](char c) {
        const unsigned byte = static_cast<unsigned char>(c);
        return byte == 0xEE || byte == 0xEF ? byte + 0x10 : byte;
    };
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [rank](char x, char y) { return rank(x) < rank(y); });
}

}  // namespace idem::core
