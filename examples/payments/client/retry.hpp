// When to try again, and after which pause. Pure: it makes no request.
#pragma once

#include <chrono>
#include <optional>
#include <random>
#include <string>

#include "exchange.hpp"

namespace payments::client {

using Milliseconds = std::chrono::milliseconds;

struct RetryRules {
    int attempts = 8;          // in all, at least 1
    Milliseconds base{100};    // the first pause is random between zero and this,
    Milliseconds cap{10'000};  // each further one between zero and twice as much, up to this
    Milliseconds longest_wish{60'000};  // of a Retry-After; a longer one is cut
};

// Whether another attempt may turn out better and can do no harm. A POST or PATCH without a key may
// have been executed, unless the server could not be reached or said that it did nothing.
bool worth_retrying(const Request& request, const Attempt& attempt);

// The pause that the field asks for: seconds, or a date (RFC 9110, section 10.2.3). None if it is
// neither.
std::optional<Milliseconds> parse_retry_after(const std::string& field, std::time_t now);

// Pauses: exponential with full jitter, so that clients that failed together do not return
// together.
class Backoff {
  public:
    explicit Backoff(const RetryRules& rules) : rules_(rules), random_(std::random_device{}()) {}
    // After the given attempt (from 1): the server's Retry-After plus the random part.
    Milliseconds pause_after(int attempt, const Attempt& outcome);

  private:
    RetryRules rules_;
    std::mt19937_64 random_;
};

}  // namespace payments::client
