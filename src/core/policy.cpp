#include "core/policy.hpp"

namespace idem::core {

std::optional<OnLeaseExpiry> on_lease_expiry_from_word(std::string_view word) noexcept {
    if (word == "takeover") return OnLeaseExpiry::Takeover;
    if (word == "unknown") return OnLeaseExpiry::Unknown;
    return std::nullopt;
}

std::optional<OnLargeBody> on_large_body_from_word(std::string_view word) noexcept {
    if (word == "error") return OnLargeBody::Error;
    if (word == "omit") return OnLargeBody::Omit;
    return std::nullopt;
}

}  // namespace idem::core
