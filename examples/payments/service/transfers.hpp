// POST /transfers: moves money through an external gateway.
#pragma once

#include <idempotency/route.hpp>

#include "database.hpp"
#include "gateway_client.hpp"
#include "test_cards.hpp"

namespace payments {

class Transfers {
  public:
    Transfers(GatewayClient& gateway, const TestCards& cards) : gateway_(gateway), cards_(cards) {}

    idempotency::Ended create(idempotency::LeasedClaim<Driver> claim,
                              const idempotency::Exchange& call) const;

  private:
    GatewayClient& gateway_;
    const TestCards& cards_;
};

}  // namespace payments
