// The HTTP Idempotency-Key field, and which response headers a record may keep.
#pragma once

#include <cstddef>
#include <string_view>

namespace idem::core {

// Reads the value of an Idempotency-Key field. It is an RFC 8941/9651 Item that is a String, whose
// parameters are checked and ignored, or, leniently, a bare value of visible ASCII characters
// without '"', '\', ',' and ';'. Surrounding spaces and tabs belong to the field, not to the key.
// Writes the key to `out` (room for header.size() bytes) and returns its length. Returns -1 for
// other forms and for a text that cannot be a key (empty, or over 255 characters).
long parse_key_field(std::string_view header, char* out) noexcept;

// Whether two header names are the same, ignoring ASCII letter case.
bool same_header(std::string_view a, std::string_view b) noexcept;

// Orders header names, ignoring ASCII letter case: below 0, 0, above 0.
int compare_headers(std::string_view a, std::string_view b) noexcept;

// Whether `name` may stand as an HTTP field name (a token of RFC 9110).
bool is_header_name(std::string_view name) noexcept;

// The error text for a name that may not.
inline constexpr const char* kNoHeaderName =
    "A header's name is empty or has characters that HTTP does not allow.";

// Whether `value` may stand as an HTTP field value: a line break in it would begin another field,
// or the body. The tab is the only control character allowed.
bool is_header_value(std::string_view value, bool utf8) noexcept;

// Headers that are never stored unless a policy names its own list. They carry credentials, frame
// one message, or belong to one connection (RFC 9110, 7.6.1) or moment.
inline constexpr std::string_view kDroppedHeaders[] = {
    "Set-Cookie",
    "Authorization",
    "Proxy-Authenticate",
    "WWW-Authenticate",
    "Date",
    "Content-Length",
    "Connection",
    "Keep-Alive",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
};

}  // namespace idem::core
