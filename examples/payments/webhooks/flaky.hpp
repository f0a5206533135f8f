// Events whose handler may fail; the policy of the scope "webhooks" decides about its retries.
#pragma once

#include <idempotency/http.hpp>
#include <pqxx/pqxx>

#include "event.hpp"

namespace webhooks {

// 204 when the event is handled, or given up; 503 when the sender should send it again.
idempotency::Answer handle_flaky(pqxx::work& tx, const Event& event);

}  // namespace webhooks
