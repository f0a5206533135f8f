// Fingerprints: SHA-256 over method, path and the canonical form of a request.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace idem::core {

inline constexpr std::size_t kFingerprintBytes = 32;
// Arrays and objects nested deeper are refused: the parser recurses, and the server's stack is the
// caller's too.
inline constexpr int kMaxJsonDepth = 1000;
// The tree of a request takes some ten times its size, in memory that the server does not account
// for. A caller with a larger one passes a digest of its own.
inline constexpr std::size_t kMaxRequestBytes = std::size_t{16} * 1024 * 1024;

enum class FingerprintFault {
    None,
    BadJson,     // not RFC 8259, not UTF-8, or an exponent that takes more than 64 bits
    TooDeep,     // nested deeper than kMaxJsonDepth
    BadExclude,  // an exclude path that can't be read; its index is in `bad_exclude`
    OutOfMemory,
    Interrupted,   // `interrupted` answered true
    DigestFailed,  // OpenSSL refused
};

struct FingerprintInput {
    std::optional<std::string_view> method;
    std::optional<std::string_view> path;
    std::optional<std::string_view> request;  // JSON text, UTF-8
    // A plain name is removed at every depth, ASCII letter case ignored; '$.a.b' and '$.a[*].b'
    // remove one place.
    const std::string_view* exclude = nullptr;
    std::size_t exclude_count = 0;
    // Asked now and then while a large request is read, so that a cancel is honoured. It has to
    // return: neither an exception nor a longjmp may leave it. May be null.
    bool (*interrupted)() = nullptr;
};

struct FingerprintResult {
    FingerprintFault fault;
    std::size_t bad_exclude;  // only with BadExclude, else 0
    unsigned char digest[kFingerprintBytes];
};

// What is hashed: the line "idempotency fingerprint 1\n", then method, path and canonical request,
// each as "<length in bytes>:<bytes>\n", or "-\n" when absent. Anybody can compute the same.
FingerprintResult fingerprint(const FingerprintInput& input) noexcept;

// Whether an exclude entry can be read, for checking a policy when it is set.
bool valid_exclude(std::string_view entry) noexcept;

}  // namespace idem::core
