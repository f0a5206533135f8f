#include "payment_events.hpp"

namespace webhooks {
namespace {

// In the transaction of its effects: if they roll back, the event counts as not received.
constexpr char kOnce[] = "SELECT idem_once($1, scope => 'webhooks', wait => '5s')";

constexpr char kApply[] = R"(
INSERT INTO payments.payment_status AS s (resource_id, type, updated_at, data)
VALUES ($1, $2, $3, $4::jsonb)
ON CONFLICT (resource_id) DO UPDATE
   SET type = excluded.type, updated_at = excluded.updated_at, data = excluded.data
 WHERE s.updated_at <= excluded.updated_at)";

constexpr char kLog[] = R"(
INSERT INTO payments.event_log (event_id, type, resource_id, updated_at, applied)
VALUES ($1, $2, $3, $4, $5))";

}  // namespace

void apply_once(pqxx::work& tx, const Event& event) {
    if (!tx.exec_params1(kOnce, event.id)[0].as<bool>()) return;
    const auto result =
        tx.exec_params(kApply, event.resource_id, event.type, event.updated_at, event.data.dump());
    tx.exec_params0(kLog, event.id, event.type, event.resource_id, event.updated_at,
                    result.affected_rows() == 1);
}

}  // namespace webhooks
