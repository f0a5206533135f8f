// POST /payments: claim, charge and answer in one transaction.
#pragma once

#include "common.hpp"

namespace payments {

Answer create_payment(Driver::Transaction& tx, const Exchange& call, const TestCards& cards);

}  // namespace payments
