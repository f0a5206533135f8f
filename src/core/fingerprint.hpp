// Fingerprints: SHA-256 over method, path and the canonical form of a request, without the fields
// that change when a client sends it again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace idem::core {

// ---- the pieces of the canonical form: RFC 8785, except that no digit of a number is lost ----

// Whether `a` sorts before `b` by UTF-16 code units, the order RFC 8785 asks for. Both are
// well-formed UTF-8.
bool utf16_less(std::string_view a, std::string_view b) noexcept;

// How many bytes at the head of a string need no escape between its quotes.
std::size_t plain_length(std::string_view text) noexcept;

inline constexpr std::size_t kLongestEscape = 6;

// The escape of a byte that plain_length() stops at, here and in the server's text of a jsonb. The
// first returns its length; the second writes it and returns the same.
std::size_t escape_length(char c) noexcept;
std::size_t spell_escape(char c, char* out) noexcept;

// +/- d.ddd * 10^exponent: the first of the decimal digits stands before the point. Zeros may stand
// at both ends.
struct Decimal {
    bool negative;
    std::string_view digits;
    std::int64_t exponent;
};

// The most that a number takes besides its digits, however large its exponent.
inline constexpr std::size_t kNumberOverhead = 32;

// Writes a number as ECMAScript does. Returns its length.
std::size_t spell_number(const Decimal& number, char* out) noexcept;

// ---- excluded fields: they change when a client sends a request again ----

// Examples of entries:
//   trace_id     the member at every depth, ASCII letter case ignored
//   "a.b"        likewise, a name in quotes, with the escapes of JSON
//   $.a.b        the member b of the member a of the request, letter case counts
//   $.a[*].b     the member b of each element of the array a
//   $.a[*]       every element of the array a, which stays as []
//   $[*][*].b    likewise, where the request itself is an array of arrays
// An entry that begins with '$' is a path. '.', '[', ']', '*', '"' and control characters are
// refused in the names of a path and in a name without quotes; blanks are refused around the
// latter. Such an entry belongs to a richer language, or is a path without its "$.", and would
// match nothing.
bool valid_exclude(std::string_view entry) noexcept;

// Entries in order: one look-up finds those that name a member.
struct Excludes {
    const std::string_view* names;  // up to `paths`: the plain ones
    const std::string_view* paths;  // up to `end`: without their '$'
    const std::string_view* end;
};

// The bytes that sort_excludes() needs for the names in quotes.
std::size_t room_for_names(const std::string_view* entries, std::size_t count) noexcept;

// Sorts `entries` in place; each is a valid_exclude(). Writes names in quotes to `room`, which
// lives as long as the result.
Excludes sort_excludes(std::string_view* entries, std::size_t count, char* room) noexcept;

// Whether a plain name excludes the member, at any depth.
bool names_exclude(const Excludes& excludes, std::string_view member) noexcept;

// The paths to one value of the request, or through it: their first `at` bytes lead there.
struct Paths {
    const std::string_view* begin;
    const std::string_view* end;
    std::size_t at;
};

// The paths through the request itself.
Paths root_paths(const Excludes& excludes) noexcept;
// The next step: from an object to a member of it; from an array to each of its elements.
Paths member_paths(const Paths& object, std::string_view member) noexcept;
Paths element_paths(const Paths& array) noexcept;

// Whether one of the paths ends here: the value is excluded.
bool paths_exclude(const Paths& paths) noexcept;

// ---- the digest ----

inline constexpr std::size_t kFingerprintBytes = 32;
// Deeper arrays and objects are refused: the walk is recursive, on the caller's stack.
inline constexpr int kMaxJsonDepth = 1000;
// Limit of the canonical form. For a larger request a caller passes its own digest.
inline constexpr std::size_t kMaxRequestBytes = std::size_t{16} * 1024 * 1024;

// In UTF-8.
struct FingerprintInput {
    std::optional<std::string_view> method;
    std::optional<std::string_view> path;
    std::optional<std::string_view> request;  // in canonical form
};

// Hashes the line "idempotency fingerprint 1\n", then method, path and canonical request, each as
// "<length in bytes>:<bytes>\n", or "-\n" when absent. Any program can compute it. False if OpenSSL
// refused.
bool fingerprint(const FingerprintInput& input,
                 unsigned char (&digest)[kFingerprintBytes]) noexcept;

}  // namespace idem::core
