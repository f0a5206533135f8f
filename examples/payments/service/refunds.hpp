// POST /refunds.
#pragma once

#include <httplib.h>

#include <pqxx/pqxx>

#include "idempotency/call.hpp"

namespace payments {

httplib::Response create_refund(pqxx::work& tx, const idempotency::Call& call);

}  // namespace payments
