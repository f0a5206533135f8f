#include "retry.hpp"

#include <algorithm>
#include <ctime>

namespace payments::client {
namespace {

constexpr int kConflict = 409;
constexpr int kTooManyRequests = 429;
constexpr int kInternalError = 500;
constexpr int kBadGateway = 502;
constexpr int kUnavailable = 503;
constexpr int kGatewayTimeout = 504;

bool harmless_twice(const Request& request) {
    const bool changes = request.method == "POST" || request.method == "PATCH";
    return !changes || request.headers.count("idempotency-key") != 0;
}

// The only form of a date that servers may send.
std::optional<std::time_t> parse_date(const std::string& field) {
    std::tm moment = {};
    const char* end = strptime(field.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &moment);
    if (end == nullptr || *end != '\0') return std::nullopt;
    return timegm(&moment);
}

// A year is the longest pause, which also prevents overflow.
Milliseconds from_seconds(long long seconds) {
    constexpr long long kYear = 365 * 86400;
    return std::chrono::seconds(std::clamp(seconds, 0LL, kYear));
}

Milliseconds wish_of(const Attempt& outcome) {
    if (!outcome.answer) return Milliseconds(0);
    const auto field = outcome.answer->headers.find("retry-after");
    if (field == outcome.answer->headers.end()) return Milliseconds(0);
    return parse_retry_after(field->second, std::time(nullptr)).value_or(Milliseconds(0));
}

}  // namespace

bool worth_retrying(const Request& request, const Attempt& attempt) {
    if (!attempt.answer) {
        return attempt.silence == Silence::Unreached || harmless_twice(request);
    }
    switch (attempt.answer->status) {
        case kTooManyRequests:
        case kUnavailable:
            return true;
        case kConflict:
        case kInternalError:
        case kBadGateway:
        case kGatewayTimeout:
            return harmless_twice(request);
        default:
            return false;
    }
}

std::optional<Milliseconds> parse_retry_after(const std::string& field, std::time_t now) {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (!field.empty() && std::all_of(field.begin(), field.end(), is_digit)) {
        constexpr std::size_t kNoOverflow = 15;
        return from_seconds(std::stoll(field.substr(0, kNoOverflow)));
    }
    const auto date = parse_date(field);
    if (!date) return std::nullopt;
    return from_seconds(static_cast<long long>(*date) - now);
}

Milliseconds Backoff::pause_after(int attempt, const Attempt& outcome) {
    Milliseconds limit = std::min(rules_.base, rules_.cap);
    for (int i = 1; i < attempt && limit < rules_.cap; ++i) limit = std::min(2 * limit, rules_.cap);
    std::uniform_int_distribution<long long> jitter(0, limit.count());
    return std::min(wish_of(outcome), rules_.longest_wish) + Milliseconds(jitter(random_));
}

}  // namespace payments::client
