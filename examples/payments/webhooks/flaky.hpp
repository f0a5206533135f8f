// Events whose handler may fail, and is then tried again as the policy of the scope "webhooks"
// says.
#pragma once

#include <idempotency/http.hpp>
#include <pqxx/pqxx>

#include "event.hpp"

namespace webhooks {

// 204 when the event is dealt with, or given up; 503 when the sender is to send it again.
idempotency::Answer handle_flaky(pqxx::work& tx, const Event& event);

}  // namespace webhooks
