// The external payment provider, as the service sees it.
#pragma once

#include <optional>
#include <string>

#include "fields.hpp"

namespace payments {

struct GatewayAnswer {
    enum Kind {
        Charged,
        Declined,
        Refused,  // otherwise, and would be again
    } kind;
    std::string charge;
};

class GatewayClient {
  public:
    explicit GatewayClient(std::string url) : url_(std::move(url)) {}

    // Nothing: no answer, or none that says what happened. The same key may be sent again.
    std::optional<GatewayAnswer> charge(const std::string& key, const Money& amount,
                                        const std::string& reference,
                                        const std::string& card) const;

  private:
    const std::string url_;
};

}  // namespace payments
