// Fingerprints: SHA-256 over method, path and the canonical form of a request.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace idem::core {

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
