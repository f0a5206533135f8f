// The external payment provider, as the service calls it.
#pragma once

#include <chrono>
#include <idempotency/watchdog.hpp>
#include <optional>
#include <string>

#include "fields.hpp"

namespace payments {

struct GatewayAnswer {
    enum Kind {
        Charged,
        Declined,
        Refused,  // for another reason; a repeat would be refused, too
    } kind;
    std::string charge;
};

class GatewayClient {
  public:
    // The timeout is for a whole call, however slowly its answer arrives.
    GatewayClient(std::string url, std::chrono::milliseconds timeout)
        : url_(std::move(url)), timeout_(timeout) {}

    // None: no answer, or one that does not tell the result. The same key may be sent again.
    std::optional<GatewayAnswer> charge(const std::string& key, const Money& amount,
                                        const std::string& reference, const std::string& card);

  private:
    const std::string url_;
    const std::chrono::milliseconds timeout_;
    idempotency::Watchdog watchdog_;
};

}  // namespace payments
