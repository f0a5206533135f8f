// POST /transfers: moves money through an external gateway, under a leased claim.
#pragma once

#include <chrono>
#include <idempotency/watchdog.hpp>

#include "common.hpp"

namespace payments {

class Transfers {
  public:
    // The timeout is for a whole call of the gateway, however slowly its answer arrives.
    Transfers(std::string gateway, std::chrono::milliseconds timeout, const TestCards& cards)
        : gateway_(std::move(gateway)), timeout_(timeout), cards_(cards) {}

    idempotency::Ended create(idempotency::LeasedClaim<Driver> claim, const Exchange& call);

  private:
    struct Charge {
        enum { Charged, Declined, Refused } kind;
        std::string id;
    };

    // None: no answer, or one that does not tell the result. The same key may be sent again.
    std::optional<Charge> charge(const json& state, const Money& amount, const std::string& card);
    static std::optional<Charge> understood(int status, const std::string& body,
                                            const Money& amount);

    const std::string gateway_;
    const std::chrono::milliseconds timeout_;
    const TestCards& cards_;
    idempotency::Watchdog watchdog_;
};

}  // namespace payments
