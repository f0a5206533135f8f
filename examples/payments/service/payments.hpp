// POST /payments, PATCH /payments/{id}, GET /payments and GET /payments/{id}.
#pragma once

#include <idempotency/route.hpp>
#include <pqxx/pqxx>

#include "database.hpp"
#include "test_cards.hpp"

namespace payments {

class Payments {
  public:
    explicit Payments(const TestCards& cards) : cards_(cards) {}

    idempotency::Answer create(pqxx::work& tx, const idempotency::Exchange& call) const;

  private:
    const TestCards& cards_;
};

idempotency::Answer describe_payment(pqxx::work& tx, const idempotency::Exchange& call);
idempotency::Answer show_payment(Pool& pool, const idempotency::Request& request,
                                 const std::string& tenant);
idempotency::Answer list_payments(Pool& pool, const idempotency::Request& request,
                                  const std::string& tenant);

}  // namespace payments
