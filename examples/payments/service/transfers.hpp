// POST /transfers: money that an external gateway has to move.
#pragma once

#include <httplib.h>

#include "gateway_client.hpp"
#include "idempotency/call.hpp"
#include "idempotency/leased_claim.hpp"
#include "test_cards.hpp"

namespace payments {

class Transfers {
  public:
    Transfers(const GatewayClient& gateway, const TestCards& cards)
        : gateway_(gateway), cards_(cards) {}

    httplib::Response create(idempotency::LeasedClaim& claim, const idempotency::Call& call) const;

  private:
    const GatewayClient& gateway_;
    const TestCards& cards_;
};

}  // namespace payments
