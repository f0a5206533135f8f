// POST /refunds.
#pragma once

#include <pqxx/pqxx>

#include <idempotency/route.hpp>

namespace payments {

idempotency::Answer create_refund(pqxx::work& tx, const idempotency::Exchange& call);

}  // namespace payments
