#include "tenant.hpp"

#include <algorithm>

namespace payments {
namespace {

constexpr std::string_view kBeginning = "sk_";
constexpr std::size_t kLongestTenant = 64;

bool is_tenant_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

// The scheme in any letter case, one blank or more, the token (RFC 9110). Two fields count as none.
std::string bearer_token(const idempotency::Request& head) {
    const auto field = idempotency::value_of(head.headers, "Authorization");
    const auto blank = field.find(' ');
    if (!idempotency::same_name(field.substr(0, blank), "Bearer")) return "";
    const auto token = field.find_first_not_of(' ', std::min(blank, field.size()));
    return token == std::string::npos ? "" : field.substr(token);
}

}  // namespace

std::optional<std::string> tenant_of(const idempotency::Request& head) {
    const auto token = bearer_token(head);
    if (token.compare(0, kBeginning.size(), kBeginning) != 0) return std::nullopt;
    const auto tenant = token.substr(kBeginning.size());
    const bool valid = !tenant.empty() && tenant.size() <= kLongestTenant &&
                       std::all_of(tenant.begin(), tenant.end(), is_tenant_character);
    return valid ? std::make_optional(tenant) : std::nullopt;
}

}  // namespace payments
