#include "core/fingerprint.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>

#include "core/key.hpp"

namespace idem::core {

// ---- canonical form ----

// Numbers never become floating point. Their decimal digits are laid out as ECMAScript's
// Number::toString does, which RFC 8785 prescribes. A number written with the shortest digits that
// identify its double, such as 0.1 or 1e30, is RFC 8785 to the byte. Any other number keeps digits
// that RFC 8785 would round away, so different numbers never become equal.

namespace {

// Strings are most of a request, so they are scanned a word at a time.
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

// The characters with a one-letter escape, and their letters.
constexpr std::string_view kMeanings = "\"\\\b\f\n\r\t";
constexpr std::string_view kLetters = "\"\\bfnrt";

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

// Without the zeros at both ends. Zero has no digits.
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

// UTF-8 sorts by code point. So does UTF-16, with one exception: its surrogates, which are the
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

std::size_t escape_length(char c) noexcept {
    return kMeanings.find(c) != std::string_view::npos ? 2 : kLongestEscape;
}

std::size_t spell_escape(char c, char* out) noexcept {
    constexpr std::string_view kHex = "0123456789abcdef";
    *out++ = '\\';
    const std::size_t which = kMeanings.find(c);
    if (which != std::string_view::npos) {
        *out = kLetters[which];
        return escape_length(c);
    }
    out = put(out, "u00");
    *out++ = kHex[static_cast<unsigned char>(c) >> 4];
    *out = kHex[static_cast<unsigned char>(c) & 0xF];
    return escape_length(c);
}

std::size_t spell_number(const Decimal& number, char* out) noexcept {
    return static_cast<std::size_t>(put_number(trimmed(number), out) - out);
}

// ---- excluded fields ----

namespace {

constexpr std::string_view kEach = "[*]";

bool is_path(std::string_view entry) {
    return !entry.empty() && entry.front() == '$';
}

bool starts_with(std::string_view text, std::string_view prefix) {
    return text.substr(0, prefix.size()) == prefix;
}

// The first step of a path without its '$': '.name' or '[*]'.
std::string_view first_step(std::string_view path) {
    if (starts_with(path, kEach)) return kEach;
    return path.substr(0, path.find_first_of(".[", 1));
}

bool valid_step(std::string_view step) {
    if (step == kEach) return true;
    return step.front() == '.' && step.size() > 1 &&
           step.find_first_of("[]*\"") == std::string_view::npos;
}

bool valid_path(std::string_view path) {
    if (path.empty()) return false;
    while (!path.empty()) {
        const std::string_view step = first_step(path);
        if (!valid_step(step)) return false;
        path.remove_prefix(step.size());
    }
    return true;
}

// ---- names in quotes ----

bool is_quoted(std::string_view entry) {
    return !entry.empty() && entry.front() == '"';
}

// The buffer for the unquoted name; nullptr: the name is only read.
struct Unquoted {
    char* out;
    std::size_t length;

    void add(std::uint32_t byte) {
        if (out != nullptr) out[length] = static_cast<char>(byte);
        ++length;
    }
};

void add_character(Unquoted* name, std::uint32_t code) {
    if (code < 0x80) return name->add(code);
    if (code < 0x800) {
        name->add(0xC0 | code >> 6);
    } else {
        if (code < 0x10000) {
            name->add(0xE0 | code >> 12);
        } else {
            name->add(0xF0 | code >> 18);
            name->add(0x80 | (code >> 12 & 0x3F));
        }
        name->add(0x80 | (code >> 6 & 0x3F));
    }
    name->add(0x80 | (code & 0x3F));
}

// The UTF-16 unit that "\\uXXXX" spells at the beginning of `text`; none: it spells none.
std::optional<std::uint32_t> unit_at(std::string_view text) {
    constexpr std::size_t kLength = 6;
    if (text.size() < kLength || text.substr(0, 2) != "\\u") return std::nullopt;
    std::uint32_t unit = 0;
    const char* end = text.data() + kLength;
    const auto read = std::from_chars(text.data() + 2, end, unit, 16);
    return read.ec == std::errc() && read.ptr == end ? std::optional(unit) : std::nullopt;
}

bool is_between(std::uint32_t unit, std::uint32_t first, std::uint32_t last) {
    return unit >= first && unit <= last;
}

// The length in bytes of the escape at the head of `text`, which begins with a backslash; 0: not an
// escape. A member's name can contain neither U+0000 nor half of a surrogate pair.
std::size_t add_escaped(Unquoted* name, std::string_view text) {
    constexpr std::string_view kSpelled = "\"\\/bfnrt";
    constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
    if (text.size() < 2) return 0;
    const std::size_t which = kSpelled.find(text[1]);
    if (which != std::string_view::npos) {
        name->add(static_cast<unsigned char>(kMeant[which]));
        return 2;
    }
    const auto unit = unit_at(text);
    if (!unit || *unit == 0 || is_between(*unit, 0xDC00, 0xDFFF)) return 0;
    if (!is_between(*unit, 0xD800, 0xDBFF)) {
        add_character(name, *unit);
        return 6;
    }
    const auto low = unit_at(text.substr(6));
    if (!low || !is_between(*low, 0xDC00, 0xDFFF)) return 0;
    add_character(name, 0x10000 + ((*unit - 0xD800) << 10) + (*low - 0xDC00));
    return 12;
}

// False if `quoted`, from its first quote to its last, is not a JSON string.
bool unquote(std::string_view quoted, Unquoted* name) {
    if (quoted.size() < 2 || quoted.back() != '"') return false;
    std::string_view rest = quoted.substr(1, quoted.size() - 2);
    while (!rest.empty()) {
        std::size_t taken = 1;
        if (rest.front() == '\\')
            taken = add_escaped(name, rest);
        else if (rest.front() == '"')
            return false;
        else
            name->add(static_cast<unsigned char>(rest.front()));
        if (taken == 0) return false;
        rest.remove_prefix(taken);
    }
    return true;
}

// A name that cannot be mistaken for a path without its "$.".
bool valid_name(std::string_view entry) {
    return entry.front() != ' ' && entry.back() != ' ' &&
           entry.find_first_of(".[]*\"") == std::string_view::npos;
}

unsigned char ascii_lower(char c) {
    return static_cast<unsigned char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

// By length first: most names differ in it.
bool name_less(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return a.size() < b.size();
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
        return ascii_lower(x) < ascii_lower(y);
    });
}

// By steps: the end of a name sorts before anything that may follow it.
bool path_less(std::string_view a, std::string_view b) {
    const auto rank = [](char c) {
        return c == '.' ? 0 : c == '[' ? 1 : 2 + static_cast<unsigned char>(c);
    };
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [rank](char x, char y) { return rank(x) < rank(y); });
}

// A step without its dot; the step to each element sorts after every name. None if the path ends.
struct Step {
    bool named;
    std::string_view name;
};

Step next_step(std::string_view path, std::size_t at) {
    const std::string_view step = first_step(path.substr(at));
    if (step == kEach) return {false, {}};
    return {true, step.substr(std::min<std::size_t>(1, step.size()))};
}

bool step_less(const Step& a, const Step& b) {
    return a.named != b.named ? a.named : a.name < b.name;
}

Paths next_paths(const Paths& paths, const Step& step, std::size_t length) {
    if (paths.begin == paths.end) return paths;
    const std::size_t at = paths.at;
    const auto* begin = std::lower_bound(
        paths.begin, paths.end, step,
        [at](std::string_view path, const Step& s) { return step_less(next_step(path, at), s); });
    const auto* end = std::upper_bound(
        begin, paths.end, step,
        [at](const Step& s, std::string_view path) { return step_less(s, next_step(path, at)); });
    return {begin, end, at + length};
}

}  // namespace

bool valid_exclude(std::string_view entry) noexcept {
    if (entry.empty() || has_control_character(entry, false)) return false;
    if (is_path(entry)) return valid_path(entry.substr(1));
    Unquoted name{nullptr, 0};
    return is_quoted(entry) ? unquote(entry, &name) : valid_name(entry);
}

std::size_t room_for_names(const std::string_view* entries, std::size_t count) noexcept {
    std::size_t room = 0;
    for (std::size_t i = 0; i < count; ++i)
        if (is_quoted(entries[i])) room += entries[i].size();
    return room;
}

Excludes sort_excludes(std::string_view* entries, std::size_t count, char* room) noexcept {
    std::string_view* end = entries + count;
    std::string_view* paths =
        std::partition(entries, end, [](std::string_view entry) { return !is_path(entry); });
    std::for_each(paths, end, [](std::string_view& path) { path.remove_prefix(1); });
    for (std::string_view* name = entries; name != paths; ++name) {
        if (!is_quoted(*name)) continue;
        Unquoted unquoted{room, 0};
        (void)unquote(*name, &unquoted);
        *name = {room, unquoted.length};
        room += unquoted.length;
    }
    std::sort(entries, paths, name_less);
    std::sort(paths, end, path_less);
    return {entries, paths, end};
}

// Searched, not hashed: a set would be built in each call and hash every member's name. A search
// among a thousand names, the most there are, compares ten lengths.
bool names_exclude(const Excludes& excludes, std::string_view member) noexcept {
    return std::binary_search(excludes.names, excludes.paths, member, name_less);
}

Paths root_paths(const Excludes& excludes) noexcept {
    return {excludes.paths, excludes.end, 0};
}

Paths member_paths(const Paths& object, std::string_view member) noexcept {
    return next_paths(object, {true, member}, 1 + member.size());
}

Paths element_paths(const Paths& array) noexcept {
    return next_paths(array, {false, {}}, kEach.size());
}

bool paths_exclude(const Paths& paths) noexcept {
    return paths.begin != paths.end && paths.begin->size() == paths.at;
}

// ---- the digest ----

namespace {

constexpr std::string_view kHeading = "idempotency fingerprint 1\n";

using Field = std::optional<std::string_view>;

// SHA-256 in progress. The first failure is kept, so callers only check finish().
class Sha256 {
  public:
    Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
        good_ =
            context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
    }

    void add(std::string_view bytes) {
        good_ = good_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
    }

    bool finish(unsigned char (&digest)[kFingerprintBytes]) {
        return good_ && EVP_DigestFinal_ex(context_.get(), digest, nullptr) == 1;
    }

  private:
    std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
    bool good_;
};

// The length comes first: a byte that moves from one field to the next changes the digest.
void add_field(Sha256& hash, const Field& field) {
    if (!field) return hash.add("-\n");
    char length[24];
    const char* end = std::to_chars(length, length + sizeof length, field->size()).ptr;
    hash.add({length, static_cast<std::size_t>(end - length)});
    hash.add(":");
    hash.add(*field);
    hash.add("\n");
}

}  // namespace

bool fingerprint(const FingerprintInput& input,
                 unsigned char (&digest)[kFingerprintBytes]) noexcept {
    Sha256 hash;
    hash.add(kHeading);
    add_field(hash, input.method);
    add_field(hash, input.path);
    add_field(hash, input.request);
    return hash.finish(digest);
}

}  // namespace idem::core
