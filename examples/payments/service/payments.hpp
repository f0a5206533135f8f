// POST /payments, PATCH /payments/{id}, GET /payments and GET /payments/{id}.
#pragma once

#include <httplib.h>

#include <pqxx/pqxx>

#include "idempotency/call.hpp"
#include "idempotency/connection_pool.hpp"
#include "test_cards.hpp"

namespace payments {

class Payments {
  public:
    explicit Payments(const TestCards& cards) : cards_(cards) {}

    httplib::Response create(pqxx::work& tx, const idempotency::Call& call) const;

  private:
    const TestCards& cards_;
};

httplib::Response describe_payment(pqxx::work& tx, const idempotency::Call& call);
httplib::Response show_payment(idempotency::ConnectionPool& pool, const httplib::Request& request);
httplib::Response list_payments(idempotency::ConnectionPool& pool, const httplib::Request& request);

}  // namespace payments
