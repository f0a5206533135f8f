// JSON and its canonical form: the same for every way of writing one value, stable when it is read
// again, and true to what was written: text, order, and every digit.
#include <algorithm>

#include "check.hpp"
#include "core/canonical.hpp"
#include "core/fingerprint.hpp"

namespace {

using namespace idem;
using core::FingerprintFault;
using core::JsonValue;
using fuzz::check;

FingerprintFault canonical(const JsonValue& value, std::string& out) {
    return core::append_canonical(value, out);
}

// Another spelling of the same value: members backwards, white space wherever it may stand, every
// character of a string escaped.
class Respelling {
  public:
    std::string of(const JsonValue& value) {
        std::visit(*this, value.data);
        return std::move(out_);
    }

    void operator()(core::JsonLiteral literal) {
        constexpr const char* kWords[] = {"null", "false", "true"};
        out_ += kWords[static_cast<int>(literal)];
    }
    void operator()(const core::JsonNumber& number) { out_ += number.text; }
    void operator()(const std::string& text) {
        const auto characters = fuzz::decoded(text);
        check(characters.has_value(), "a parsed string is UTF-8");
        out_ += '"';
        for (const char32_t c : *characters) append_escaped(c);
        out_ += '"';
    }
    void operator()(const core::JsonArray& items) {
        out_ += "[\t";
        for (const JsonValue& item : items) {
            if (&item != &items.front()) out_ += " ,\n";
            std::visit(*this, item.data);
        }
        out_ += "\r]";
    }
    void operator()(const core::JsonObject& members) {
        out_ += "{ ";
        for (auto member = members.rbegin(); member != members.rend(); ++member) {
            if (member != members.rbegin()) out_ += "\t, ";
            (*this)(member->name);
            out_ += " : ";
            std::visit(*this, member->value.data);
        }
        out_ += " }";
    }

  private:
    void append_escaped(char32_t c) {
        if (c < 0x10000) return append_unit(c);
        append_unit(0xD800 + ((c - 0x10000) >> 10));
        append_unit(0xDC00 + ((c - 0x10000) & 0x3FF));
    }
    void append_unit(char32_t unit) {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04X", static_cast<unsigned>(unit));
        out_ += escape;
    }

    std::string out_;
};

std::u16string as_utf16(std::string_view text) {
    std::u16string out;
    const auto characters = fuzz::decoded(text);
    for (const char32_t c : characters.value()) {
        if (c >= 0x10000) out += static_cast<char16_t>(0xD800 + ((c - 0x10000) >> 10));
        out += static_cast<char16_t>(c < 0x10000 ? c : 0xDC00 + ((c - 0x10000) & 0x3FF));
    }
    return out;
}

void check_order(const core::JsonObject& members) {
    for (std::size_t i = 1; i < members.size(); ++i) {
        check(as_utf16(members[i - 1].name) < as_utf16(members[i].name),
              "names stand once, in the order of UTF-16");
    }
}

// Reading a number as a double shares no code with laying out its digits.
void check_number(const core::JsonNumber& number) {
    std::string text;
    if (canonical(JsonValue{number}, text) != FingerprintFault::None) return;
    const std::string written(number.text);
    check(std::strtod(written.c_str(), nullptr) == std::strtod(text.c_str(), nullptr),
          "a number keeps its value");
}

void check_tree(const JsonValue& value) {
    if (const auto* members = std::get_if<core::JsonObject>(&value.data)) {
        check_order(*members);
        for (const core::JsonMember& member : *members) check_tree(member.value);
    } else if (const auto* items = std::get_if<core::JsonArray>(&value.data)) {
        for (const JsonValue& item : *items) check_tree(item);
    } else if (const auto* number = std::get_if<core::JsonNumber>(&value.data)) {
        check_number(*number);
    }
}

void check_same_form(std::string_view text, const std::string& form, const char* property) {
    JsonValue value;
    check(core::parse_json(text, nullptr, value) == FingerprintFault::None, property);
    std::string again;
    check(canonical(value, again) == FingerprintFault::None && again == form, property);
}

core::FingerprintResult fingerprint_of(std::string_view request) {
    core::FingerprintInput input;
    input.request = request;
    return core::fingerprint(input);
}

void check_same_fingerprint(std::string_view text, const std::string& form) {
    const auto a = fingerprint_of(text);
    const auto b = fingerprint_of(form);
    check(a.fault == FingerprintFault::None && b.fault == FingerprintFault::None,
          "what has a canonical form has a fingerprint");
    check(std::equal(a.digest, a.digest + sizeof a.digest, b.digest),
          "a request and its canonical form have one fingerprint");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::vector<char> bytes = fuzz::on_heap(fuzz::as_text(data, size));
    const std::string_view text(bytes.data(), bytes.size());
    JsonValue value;
    const FingerprintFault fault = core::parse_json(text, nullptr, value);
    if (fault != FingerprintFault::None) {
        check(fault == FingerprintFault::BadJson || fault == FingerprintFault::TooDeep,
              "a parser refuses with one of two words");
        check(fingerprint_of(text).fault == fault, "what can't be read has no fingerprint");
        return 0;
    }
    check(fuzz::decoded(text).has_value(), "what is read is UTF-8");
    check_tree(value);
    std::string form;
    if (canonical(value, form) != FingerprintFault::None) {
        check(fingerprint_of(text).fault == FingerprintFault::BadJson,
              "what has no canonical form has no fingerprint");
        return 0;
    }
    check_same_form(form, form, "the canonical form is its own canonical form");
    check_same_form(Respelling().of(value), form, "one value has one form, however it is spelled");
    check_same_fingerprint(text, form);
    return 0;
}
