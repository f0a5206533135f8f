// Requests and answers for the rules, independent of the HTTP library.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract.hpp"

namespace idempotency {

// In order; a name may occur more than once.
using Fields = std::vector<std::pair<std::string, std::string>>;

inline bool same_name(std::string_view a, std::string_view b) {
    const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                              [&](char x, char y) { return lower(x) == lower(y); });
}

inline std::vector<std::string> values_of(const Fields& fields, std::string_view name) {
    std::vector<std::string> values;
    for (const auto& [each, value] : fields) {
        if (same_name(each, name)) values.push_back(value);
    }
    return values;
}

// The only value of a field; "" if there is none or more than one.
inline std::string value_of(const Fields& fields, std::string_view name) {
    const auto values = values_of(fields, name);
    return values.size() == 1 ? values[0] : "";
}

inline void remove(Fields& fields, std::string_view name) {
    const auto has_name = [&](const auto& field) { return same_name(field.first, name); };
    fields.erase(std::remove_if(fields.begin(), fields.end(), has_name), fields.end());
}

inline void set(Fields& fields, std::string_view name, std::string value) {
    remove(fields, name);
    fields.emplace_back(name, std::move(value));
}

struct Request {
    std::string method;
    std::string target;  // unchanged, with the query string
    Fields headers;      // the raw values: nothing is unescaped, unfolded or joined
    std::string body;    // decoded
};

struct Answer {
    int status = 500;
    Fields headers;
    std::string body;
};

// Of work that has none.
inline Answer no_answer() {
    return {0, {}, ""};
}

// Ends a request early with an answer that is not stored.
class Refusal : public std::exception {
  public:
    explicit Refusal(Answer answer) : answer_(std::move(answer)) {}
    const Answer& answer() const noexcept { return answer_; }
    const char* what() const noexcept override { return "request refused"; }

  private:
    Answer answer_;
};

// ---- which answers are kept ----

// 408, 425, 429 and 5xx mean that the request has not been handled.
inline bool keep_by_default(int status) {
    const auto passing = [status](int each) { return each == status; };
    return status < 500 &&
           std::none_of(std::begin(contract::kNotKept), std::end(contract::kNotKept), passing);
}

// Of a route about an answer.
enum class Verdict {
    Keep,     // store and replay it
    Free,     // nothing has happened: a repeat is executed
    Unknown,  // the work counts, and its outcome is not known
};

// ---- the key ----

namespace detail {

inline constexpr std::size_t kLongestKey = 255;

// Parameters after an item (RFC 9651): checked and ignored.
class Parameters {
  public:
    explicit Parameters(std::string_view text) : rest_(text) {}

    bool valid() {
        while (take(';')) {
            while (take(' ')) {
            }
            if (!name() || (take('=') && !value())) return false;
        }
        return rest_.find_first_not_of(' ') == std::string_view::npos;
    }

  private:
    static bool lower(char c) { return c >= 'a' && c <= 'z'; }
    static bool digit(char c) { return c >= '0' && c <= '9'; }
    static bool alpha(char c) { return lower(c) || (c >= 'A' && c <= 'Z'); }
    static bool one_of(char c, std::string_view set) { return set.find(c) != set.npos; }

    bool take(char c) {
        if (rest_.empty() || rest_.front() != c) return false;
        rest_.remove_prefix(1);
        return true;
    }

    template <typename Is>
    std::size_t skip(Is is) {
        std::size_t count = 0;
        while (count < rest_.size() && is(rest_[count])) ++count;
        rest_.remove_prefix(count);
        return count;
    }

    bool name() {
        if (rest_.empty() || !(lower(rest_.front()) || rest_.front() == '*')) return false;
        skip([](char c) { return lower(c) || digit(c) || one_of(c, "_-.*"); });
        return true;
    }

    bool number() {
        take('-');
        const auto whole = skip(digit);
        if (whole == 0) return false;
        if (!take('.')) return whole <= 15;
        const auto fraction = skip(digit);
        return whole <= 12 && fraction >= 1 && fraction <= 3;
    }

    bool text() {
        while (!rest_.empty()) {
            const char c = rest_.front();
            rest_.remove_prefix(1);
            if (c == '"') return true;
            if (c == '\\') {
                if (!take('"') && !take('\\')) return false;
            } else if (c < ' ' || c > '~') {
                return false;
            }
        }
        return false;
    }

    bool bytes() {
        skip([](char c) { return alpha(c) || digit(c) || one_of(c, "+/"); });
        skip([](char c) { return c == '='; });
        return take(':');
    }

    // A Display String. The escaped bytes need not be UTF-8: parameters are ignored.
    bool display() {
        const auto hex = [this] {
            const bool good = !rest_.empty() && one_of(rest_.front(), "0123456789abcdef");
            if (good) rest_.remove_prefix(1);
            return good;
        };
        if (!take('"')) return false;
        while (!rest_.empty()) {
            const char c = rest_.front();
            rest_.remove_prefix(1);
            if (c == '"') return true;
            if (c < ' ' || c > '~') return false;
            if (c == '%' && !(hex() && hex())) return false;
        }
        return false;
    }

    bool token() {
        skip([](char c) { return alpha(c) || digit(c) || one_of(c, "!#$%&'*+-.^_`|~:/"); });
        return true;
    }

    bool date() {
        take('-');
        const auto digits = skip(digit);
        return digits >= 1 && digits <= 15;
    }

    bool value() {
        if (rest_.empty()) return false;
        const char c = rest_.front();
        if (c == '-' || digit(c)) return number();
        if (alpha(c) || c == '*') return token();
        if (take('"')) return text();
        if (take(':')) return bytes();
        if (take('?')) return take('0') || take('1');
        if (take('@')) return date();
        if (take('%')) return display();
        return false;
    }

    std::string_view rest_;
};

inline bool fit_for_key(std::string_view key) {
    return !key.empty() && key.size() <= kLongestKey && key.find_first_not_of(' ') != key.npos;
}

inline std::optional<std::string> quoted_key(std::string_view field) {
    std::string key;
    for (std::size_t i = 1; i < field.size(); ++i) {
        const char c = field[i];
        if (c == '"') {
            const bool good = fit_for_key(key) && Parameters(field.substr(i + 1)).valid();
            return good ? std::optional<std::string>(key) : std::nullopt;
        }
        if (c < ' ' || c > '~') return std::nullopt;
        if (c == '\\') {
            ++i;
            if (i == field.size() || (field[i] != '"' && field[i] != '\\')) return std::nullopt;
        }
        key += field[i];
    }
    return std::nullopt;
}

inline std::optional<std::string> bare_key(std::string_view field) {
    const auto is_plain = [](char c) {
        return c > ' ' && c <= '~' && c != '"' && c != '\\' && c != ',' && c != ';';
    };
    const bool good = fit_for_key(field) && std::all_of(field.begin(), field.end(), is_plain);
    return good ? std::optional<std::string>(field) : std::nullopt;
}

}  // namespace detail

// The value of a field Idempotency-Key as idem_parse_key reads it: a String of RFC 9651, or a bare
// value. It must be the raw value: "a%2Db" and "a-b" are two keys.
inline std::optional<std::string> parse_key(std::string_view field) {
    const auto begin = field.find_first_not_of(" \t");
    if (begin == field.npos) return std::nullopt;
    field = field.substr(begin, field.find_last_not_of(" \t") - begin + 1);
    return field.front() == '"' ? detail::quoted_key(field) : detail::bare_key(field);
}

// A key as a String of RFC 9651.
inline std::string to_key_field(std::string_view key) {
    std::string result = "\"";
    for (const char c : key) {
        if (c == '"' || c == '\\') result += '\\';
        result += c;
    }
    return result + '"';
}

struct KeyField {
    enum Kind { Missing, Bad, Good } kind = Missing;
    std::string key;
};

// Two fields are not a key, even if one is empty.
inline KeyField key_of(const Fields& headers, std::string_view name) {
    const auto values = values_of(headers, name);
    if (values.empty()) return {};
    auto key = values.size() == 1 ? parse_key(values[0]) : std::nullopt;
    if (!key) return {KeyField::Bad, ""};
    return {KeyField::Good, *std::move(key)};
}

// ---- the body ----

// Without parameters, in lower case.
inline std::string media_type(const Fields& headers) {
    std::string type = value_of(headers, "Content-Type");
    type.erase(std::find(type.begin(), type.end(), ';'), type.end());
    const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
    type.erase(std::remove_if(type.begin(), type.end(), is_blank), type.end());
    std::transform(type.begin(), type.end(), type.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return type;
}

// application/json, application/vnd.api+json.
inline bool is_json(const std::string& type) {
    constexpr std::string_view kSuffix = "+json";
    return type == "application/json" ||
           (type.size() > kSuffix.size() &&
            type.compare(type.size() - kSuffix.size(), kSuffix.size(), kSuffix) == 0);
}

// How deep arrays and objects are nested, in one pass. Not meaningful for a text that is not JSON.
inline std::size_t json_depth(std::string_view text) {
    std::size_t depth = 0, deepest = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            deepest = std::max(deepest, ++depth);
        } else if ((c == ']' || c == '}') && depth > 0) {
            --depth;
        }
    }
    return deepest;
}

}  // namespace idempotency
