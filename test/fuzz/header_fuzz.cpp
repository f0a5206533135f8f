// The Idempotency-Key field: an accepted field is a key, means the same when written anew, and does
// not depend on the text around it.
#include <regex.h>

#include <algorithm>

#include "check.hpp"
#include "core/header.hpp"
#include "core/key.hpp"

namespace {

using namespace idem;
using fuzz::check;

std::optional<std::string> parse(std::string_view field) {
    const std::vector<char> in = fuzz::on_heap(field);
    std::vector<char> out(field.size());
    const long length = core::parse_key_field({in.data(), in.size()}, out.data());
    if (length < 0) return std::nullopt;
    check(static_cast<std::size_t>(length) <= field.size(), "a key is no longer than its field");
    return std::string(out.data(), static_cast<std::size_t>(length));
}

std::string as_string_item(std::string_view key) {
    std::string out = "\"";
    for (const char c : key) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + '"';
}

void check_key(const std::string& key) {
    const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
    check(std::all_of(key.begin(), key.end(), printable),
          "a key has visible characters and spaces");
    check(core::check_key({key, key.size(), true}) == core::NameFault::None, "a key is a key");
}

// Longer ones take the C library too long.
constexpr std::size_t kLongestCompared = 300;

// The whole grammar once more, as regular expressions of the C library.
#define ITEM                                                            \
    "(-?[0-9]{1,15}|-?[0-9]{1,12}\\.[0-9]{1,3}|@-?[0-9]{1,15}|\\?[01]|" \
    "[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*|:[A-Za-z0-9+/]*=*:|" STRING "|" DISPLAY ")"
#define STRING "\"([] !#-[^-~]|\\\\[\"\\])*\""
#define DISPLAY "%\"([] !#$&-[^-~\\]|%[0-9a-f]{2})*\""
#define PADDING "[ \t]*"
constexpr char kStringItem[] =
    "^" PADDING STRING "(; *[a-z*][a-z0-9_.*-]*(=" ITEM ")?)*" PADDING "$";
constexpr char kBareWord[] = "^" PADDING "[]!#-+./0-9:<-[^-~-]+" PADDING "$";

bool matches(const std::string& field, const char* pattern, regex_t& compiled, bool& ready) {
    if (!ready) {
        std::setlocale(LC_ALL, "C");
        check(regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) == 0, "the grammar compiles");
        ready = true;
    }
    return regexec(&compiled, field.c_str(), 0, nullptr, 0) == 0;
}

bool in_grammar(const std::string& field) {
    static regex_t item, word;
    static bool item_ready = false, word_ready = false;
    return matches(field, kStringItem, item, item_ready) ||
           matches(field, kBareWord, word, word_ready);
}

// Accepted, and a key: neither empty nor only spaces nor too long.
bool is_acceptable(const std::string& field) {
    if (field.find('\0') != std::string::npos || !in_grammar(field)) return false;
    const std::size_t start = field.find_first_not_of(" \t");
    if (field[start] != '"') return field.find_last_not_of(" \t") - start < core::kMaxNameChars;
    std::size_t length = 0;
    bool blank = true;
    for (std::size_t i = start + 1; field[i] != '"'; ++i, ++length) {
        if (field[i] == '\\') ++i;
        if (field[i] != ' ') blank = false;
    }
    return !blank && length <= core::kMaxNameChars;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view field = fuzz::as_text(data, size);
    const auto key = parse(field);
    check(parse(" \t" + std::string(field) + "\t ") == key, "padding does not count");
    check(parse(as_string_item(field)).value_or(std::string(field)) == field,
          "a string item gives back what was quoted");
    if (size <= kLongestCompared) {
        check(key.has_value() == is_acceptable(std::string(field)),
              "a field is accepted exactly if the grammar has it");
    }
    if (!key) return 0;
    check_key(*key);
    check(parse(as_string_item(*key)) == key, "the key survives being written as a string item");
    return 0;
}
