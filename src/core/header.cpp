#include "core/header.hpp"

#include <algorithm>

#include "core/key.hpp"

namespace idem::core {
namespace {

// The classes of <cctype> depend on the locale; those of HTTP do not.
constexpr bool is_digit(char c) noexcept {
    return c >= '0' && c <= '9';
}
constexpr bool is_lower(char c) noexcept {
    return c >= 'a' && c <= 'z';
}
constexpr bool is_upper(char c) noexcept {
    return c >= 'A' && c <= 'Z';
}
constexpr bool is_alpha(char c) noexcept {
    return is_lower(c) || is_upper(c);
}
constexpr bool is_space(char c) noexcept {
    return c == ' ';
}
constexpr bool is_printable(char c) noexcept {
    return c >= ' ' && c <= '~';
}
constexpr char lower(char c) noexcept {
    return is_upper(c) ? static_cast<char>(c + 32) : c;
}

constexpr bool one_of(char c, std::string_view set) noexcept {
    return set.find(c) != std::string_view::npos;
}

// RFC 9110, section 5.6.2.
constexpr bool is_tchar(char c) noexcept {
    return is_alpha(c) || is_digit(c) || one_of(c, "!#$%&'*+-.^_`|~");
}

constexpr bool is_bare_character(char c) noexcept {
    return is_printable(c) && !is_space(c) && !one_of(c, "\"\\,;");
}

// The unread rest of a field. Its position is undefined after a read_ function returned false.
class Cursor {
  public:
    explicit Cursor(std::string_view text) noexcept : rest_(text) {}

    bool done() const noexcept { return rest_.empty(); }
    // The next character, NUL at the end: no element of a field begins with NUL.
    char peek() const noexcept { return done() ? '\0' : rest_.front(); }

    char next() noexcept {
        const char c = peek();
        if (!done()) rest_.remove_prefix(1);
        return c;
    }

    bool take(char c) noexcept {
        if (done() || rest_.front() != c) return false;
        rest_.remove_prefix(1);
        return true;
    }

    // Takes characters while they are of the class; returns how many.
    template <typename Class>
    std::size_t skip(Class is_member) noexcept {
        const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_member);
        const auto length = static_cast<std::size_t>(end - rest_.begin());
        rest_.remove_prefix(length);
        return length;
    }

  private:
    std::string_view rest_;
};

// The readers below follow RFC 8941 and 9651, section 4.2. They check parameters and drop them.

// A String. Writes its unescaped text to `out` unless that is nullptr; returns its length, or -1.
long read_string(Cursor& in, char* out) noexcept {
    if (!in.take('"')) return -1;
    for (long length = 0; !in.done(); ++length) {
        char c = in.next();
        if (c == '"') return length;
        if (!is_printable(c)) return -1;
        if (c == '\\') {
            c = in.next();
            if (c != '"' && c != '\\') return -1;
        }
        if (out != nullptr) out[length] = c;
    }
    return -1;
}

// An Integer has up to 15 digits; a Decimal up to 12, a point, and 1 to 3 more.
bool read_number(Cursor& in, bool decimal_too) noexcept {
    in.take('-');
    const std::size_t whole = in.skip(is_digit);
    if (!decimal_too || !in.take('.')) return whole >= 1 && whole <= 15;
    const std::size_t fraction = in.skip(is_digit);
    return whole >= 1 && whole <= 12 && fraction >= 1 && fraction <= 3;
}

bool read_token(Cursor& in) noexcept {
    if (!is_alpha(in.peek()) && in.peek() != '*') return false;
    in.skip([](char c) { return is_tchar(c) || c == ':' || c == '/'; });
    return true;
}

// Missing padding is allowed, as the RFCs advise.
bool read_bytes(Cursor& in) noexcept {
    if (!in.take(':')) return false;
    in.skip([](char c) { return is_alpha(c) || is_digit(c) || c == '+' || c == '/'; });
    in.skip([](char c) { return c == '='; });
    return in.take(':');
}

bool read_boolean(Cursor& in) noexcept {
    return in.take('?') && (in.take('0') || in.take('1'));
}

// A Display String (RFC 9651). The escaped bytes need not be UTF-8: parameters are dropped.
bool read_display_string(Cursor& in) noexcept {
    const auto is_hex = [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); };
    if (!in.take('%') || !in.take('"')) return false;
    while (!in.done()) {
        const char c = in.next();
        if (c == '"') return true;
        if (!is_printable(c)) return false;
        if (c == '%' && !(is_hex(in.next()) && is_hex(in.next()))) return false;
    }
    return false;
}

bool read_bare_item(Cursor& in) noexcept {
    switch (in.peek()) {
        case '"':
            return read_string(in, nullptr) >= 0;
        case ':':
            return read_bytes(in);
        case '?':
            return read_boolean(in);
        case '@':
            return in.take('@') && read_number(in, false);  // a Date
        case '%':
            return read_display_string(in);
        default:
            return is_digit(in.peek()) || in.peek() == '-' ? read_number(in, true) : read_token(in);
    }
}

bool read_parameter_name(Cursor& in) noexcept {
    if (!is_lower(in.peek()) && in.peek() != '*') return false;
    in.skip([](char c) { return is_lower(c) || is_digit(c) || one_of(c, "_-.*"); });
    return true;
}

bool read_parameters(Cursor& in) noexcept {
    while (in.take(';')) {
        in.skip(is_space);
        if (!read_parameter_name(in)) return false;
        if (in.take('=') && !read_bare_item(in)) return false;
    }
    return true;
}

long read_string_item(std::string_view value, char* out) noexcept {
    Cursor in(value);
    const long length = read_string(in, out);
    return length >= 0 && read_parameters(in) && in.done() ? length : -1;
}

long read_bare_value(std::string_view value, char* out) noexcept {
    if (!std::all_of(value.begin(), value.end(), is_bare_character)) return -1;
    std::copy(value.begin(), value.end(), out);
    return static_cast<long>(value.size());
}

std::string_view without_padding(std::string_view field) noexcept {
    const std::size_t first = field.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return field.substr(first, field.find_last_not_of(" \t") - first + 1);
}

}  // namespace

long parse_key_field(std::string_view header, char* out) noexcept {
    const std::string_view value = without_padding(header);
    if (value.empty()) return -1;
    const bool quoted = value.front() == '"';
    const long length = quoted ? read_string_item(value, out) : read_bare_value(value, out);
    if (length < 0) return -1;
    // Both forms are ASCII: bytes are characters.
    const std::string_view key(out, static_cast<std::size_t>(length));
    return check_key({key, key.size(), false}) == NameFault::None ? length : -1;
}

bool same_header(std::string_view a, std::string_view b) noexcept {
    return compare_headers(a, b) == 0;
}

int compare_headers(std::string_view a, std::string_view b) noexcept {
    const std::size_t shorter = std::min(a.size(), b.size());
    for (std::size_t i = 0; i < shorter; ++i) {
        const int difference = lower(a[i]) - lower(b[i]);
        if (difference != 0) return difference;
    }
    return static_cast<int>(a.size() > b.size()) - static_cast<int>(a.size() < b.size());
}

bool is_header_name(std::string_view name) noexcept {
    return !name.empty() && std::all_of(name.begin(), name.end(), is_tchar);
}

bool is_header_value(std::string_view value, bool utf8) noexcept {
    return !has_control_character(value, utf8, '\t');
}

}  // namespace idem::core
