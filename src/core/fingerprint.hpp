// Fingerprints: SHA-256 over method, path and the canonical form of a request, without the fields
// that differ between its sendings.
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

// How many bytes at the head of a string stand for themselves between its quotes.
std::size_t plain_length(std::string_view text) noexcept;

inline constexpr std::size_t kLongestEscape = 6;

// What stands for a byte that plain_length() stops at, here and in the server's text of a jsonb:
// how long it is; and writes it, which answers the same.
std::size_t escape_length(char c) noexcept;
std::size_t spell_escape(char c, char* out) noexcept;

// +/- d.ddd * 10^exponent, the first of the decimal digits being that before the point. Zeros may
// stand at both ends.
struct Decimal {
    bool negative;
    std::string_view digits;
    std::int64_t exponent;
};

// A number takes no more than this beside its digits, however large its exponent.
inline constexpr std::size_t kNumberOverhead = 32;

// Writes a number as ECMAScript does. Answers its length.
std::size_t spell_number(const Decimal& number, char* out) noexcept;

// ---- fields that are left out, because they differ between the sendings of one request ----

// Entries, by example:
//   trace_id     the member at every depth, ASCII letter case ignored
//   "a.b"        likewise, a name in quotes, with the escapes of JSON
//   $.a.b        the member b of the member a of the request, letter case counts
//   $.a[*].b     the member b of each element of the array a
//   $.a[*]       every element of the array a, which stays as []
//   $[*][*].b    likewise, where the request itself is an array of arrays
// What begins with '$' is a path. In the names of a path and in a name without quotes '.', '[',
// ']', '*', '"' and control characters are refused, and blanks around the latter: such an entry is
// meant for a richer language, or is a path that lacks its "$.", and would match nothing.
bool valid_exclude(std::string_view entry) noexcept;

// Entries in order, so that one look-up finds what they say of a member.
struct Excludes {
    const std::string_view* names;  // up to `paths`: the plain ones
    const std::string_view* paths;  // up to `end`: without their '$'
    const std::string_view* end;
};

// How many bytes sort_excludes() needs for the names that stand in quotes.
std::size_t room_for_names(const std::string_view* entries, std::size_t count) noexcept;

// Brings `entries`, each of which is a valid_exclude(), into order where they are. Names in quotes
// are written to `room`, which lives as long as the result.
Excludes sort_excludes(std::string_view* entries, std::size_t count, char* room) noexcept;

// Whether a plain name leaves the member out, wherever it is.
bool names_exclude(const Excludes& excludes, std::string_view member) noexcept;

// The paths that lead to one value of the request, or through it: their first `at` bytes do.
struct Paths {
    const std::string_view* begin;
    const std::string_view* end;
    std::size_t at;
};

// Those through the request itself.
Paths root_paths(const Excludes& excludes) noexcept;
// From an object on to a member of it; from an array on to each of its elements.
Paths member_paths(const Paths& object, std::string_view member) noexcept;
Paths element_paths(const Paths& array) noexcept;

// Whether one of them ends here: the value is left out.
bool paths_exclude(const Paths& paths) noexcept;

// ---- the digest ----

inline constexpr std::size_t kFingerprintBytes = 32;
// Arrays and objects nested deeper are refused: they are walked by recursion, and the server's
// stack is the caller's too.
inline constexpr int kMaxJsonDepth = 1000;
// Of the canonical form. A caller with a larger request passes a digest of its own.
inline constexpr std::size_t kMaxRequestBytes = std::size_t{16} * 1024 * 1024;

// In UTF-8.
struct FingerprintInput {
    std::optional<std::string_view> method;
    std::optional<std::string_view> path;
    std::optional<std::string_view> request;  // in canonical form
};

// What is hashed: the line "idempotency fingerprint 1\n", then method, path and canonical request,
// each as "<length in bytes>:<bytes>\n", or "-\n" when absent. Anybody can compute the same. False
// if OpenSSL refused.
bool fingerprint(const FingerprintInput& input,
                 unsigned char (&digest)[kFingerprintBytes]) noexcept;

}  // namespace idem::core
