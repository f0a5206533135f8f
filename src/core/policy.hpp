// The values of a policy, and which of them make sense.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/decision.hpp"

namespace idem::core {

enum class OnLargeBody { Error, Omit };

// Durations are microseconds.
struct Policy {
    std::int64_t ttl;
    std::int64_t retention;  // at least ttl
    std::int64_t lease;
    std::int64_t wait;
    int max_attempts;  // 0: no limit
    std::int64_t retry_base;
    std::int64_t retry_cap;
    bool key_required;
    bool fingerprint_required;
    bool store_request;
    OnLeaseExpiry on_lease_expiry;
    std::int64_t max_body_bytes;
    OnLargeBody on_large_body;
};

// Where neither a policy nor a setting says otherwise.
inline constexpr std::int64_t kDefaultRetryBase = 1'000'000;
inline constexpr std::int64_t kDefaultRetryCap = 300'000'000;
// A bytea's text form is twice as long, and no value may reach 1 GB.
inline constexpr std::int64_t kLargestBody = 256LL * 1024 * 1024;

std::optional<OnLeaseExpiry> on_lease_expiry_from_word(std::string_view word) noexcept;
std::optional<OnLargeBody> on_large_body_from_word(std::string_view word) noexcept;

}  // namespace idem::core
