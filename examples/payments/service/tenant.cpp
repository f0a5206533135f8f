#include "tenant.hpp"

#include <algorithm>

#include "idempotency/problem.hpp"

namespace payments {
namespace {

constexpr char kBeginning[] = "Bearer sk_";
constexpr std::size_t kLongestTenant = 64;

bool is_tenant_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

std::optional<std::string> tenant_of(const httplib::Request& request) {
    const std::string beginning = kBeginning;
    const std::string field = request.get_header_value("Authorization");
    if (field.compare(0, beginning.size(), beginning) != 0) return std::nullopt;
    const std::string tenant = field.substr(beginning.size());
    const bool valid = !tenant.empty() && tenant.size() <= kLongestTenant &&
                       std::all_of(tenant.begin(), tenant.end(), is_tenant_character);
    return valid ? std::make_optional(tenant) : std::nullopt;
}

std::string required_tenant(const httplib::Request& request) {
    auto tenant = tenant_of(request);
    if (!tenant) throw idempotency::Refusal(idempotency::unauthorized());
    return *std::move(tenant);
}

}  // namespace payments
