// Forms (multipart/form-data). Each sending has another boundary, so the parts identify a form, and
// not its bytes.
#pragma once

#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http.hpp"
#include "text.hpp"

namespace idempotency {

namespace detail {

inline std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The value after the "=" of a parameter. Moves to its end.
inline std::string parameter_value(std::string_view field, std::size_t& at) {
    std::string value;
    if (at == field.size() || field[at] != '"') {
        const auto end = std::min(field.find(';', at), field.size());
        value = trimmed(field.substr(at, end - at));
        at = end;
        return value;
    }
    while (++at < field.size() && field[at] != '"') {
        const bool escaped = field[at] == '\\' && at + 1 < field.size() &&
                             (field[at + 1] == '"' || field[at + 1] == '\\');
        if (escaped) ++at;
        value += field[at];
    }
    return value;
}

// A parameter of a field's value, without its quotes.
inline std::optional<std::string> parameter(std::string_view field, std::string_view name) {
    auto at = field.find(';');
    while (at != field.npos) {
        const auto equals = field.find('=', at);
        if (equals == field.npos) return std::nullopt;
        const auto found = trimmed(field.substr(at + 1, equals - at - 1));
        at = std::min(field.find_first_not_of(" \t", equals + 1), field.size());
        auto value = parameter_value(field, at);
        if (same_name(found, name)) return value;
        at = field.find(';', at);
    }
    return std::nullopt;
}

// The fields and the content of a part, as parts of the fingerprint.
inline std::optional<std::vector<std::optional<std::string>>> part_of(std::string_view bytes) {
    const auto end = bytes.find("\r\n\r\n");
    if (bytes.substr(0, 2) != "\r\n" || end == bytes.npos) return std::nullopt;
    Fields fields;
    for (std::size_t at = 2; at <= end;) {
        const auto line = bytes.substr(at, bytes.find("\r\n", at) - at);
        const auto colon = line.find(':');
        if (colon != line.npos) {
            fields.emplace_back(trimmed(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
        }
        at += line.size() + 2;
    }
    const auto disposition = values_of(fields, "Content-Disposition");
    if (disposition.empty()) return std::nullopt;
    return std::vector<std::optional<std::string>>{
        parameter(disposition[0], "name"), parameter(disposition[0], "filename"),
        unless_empty(media_type(fields)), std::string(bytes.substr(end + 4))};
}

}  // namespace detail

// Name, file name, media type and content of each part. None if the body is not what its
// Content-Type says.
inline std::optional<std::vector<std::optional<std::string>>> parts_of_form(
    std::string_view content_type, const std::string& body) {
    const auto boundary = detail::parameter(content_type, "boundary");
    if (!boundary || boundary->empty()) return std::nullopt;
    const std::string mark = "\r\n--" + *boundary;
    const std::string whole = "\r\n" + body;  // the first mark may begin the body
    if (whole.compare(0, mark.size(), mark) != 0) return std::nullopt;
    std::vector<std::optional<std::string>> parts;
    for (std::size_t at = mark.size();;) {
        if (whole.compare(at, 2, "--") == 0) {
            const bool good = whole.size() <= at + 4 && !parts.empty();
            return good ? std::make_optional(parts) : std::nullopt;
        }
        const auto end = whole.find(mark, at);
        if (end == whole.npos) return std::nullopt;
        const auto part = detail::part_of(std::string_view(whole).substr(at, end - at));
        if (!part) return std::nullopt;
        parts.insert(parts.end(), part->begin(), part->end());
        at = end + mark.size();
    }
}

// The fingerprint of a request whose body is not JSON.
inline std::string digest_of(std::string_view method, std::string_view target,
                             const Fields& headers, const std::string& body) {
    const auto type = media_type(headers);
    const auto parts = type == "multipart/form-data"
                           ? parts_of_form(value_of(headers, "Content-Type"), body)
                           : std::nullopt;
    if (!parts) return digest_of_bytes(method, target, type, body);
    std::vector<std::optional<std::string>> all = {std::string(method), std::string(target), type};
    all.insert(all.end(), parts->begin(), parts->end());
    return digest_of_parts(all);
}

}  // namespace idempotency
