#include "receiver.hpp"

#include "event.hpp"
#include "flaky.hpp"
#include "payment_events.hpp"

namespace webhooks {
namespace {

idempotency::Answer acknowledged() {
    return {204, {}, ""};
}

idempotency::Answer handle(pqxx::work& tx, const Event& event) {
    if (event.type == "flaky") return handle_flaky(tx, event);
    if (event.type.rfind("payment.", 0) == 0) apply_once(tx, event);
    return acknowledged();  // also events of other types: the sender would repeat them for ever
}

}  // namespace

idempotency::Answer receive(payments::Pool& pool, const idempotency::Request& request) {
    const auto connection = pool.lend();
    pqxx::work tx(**connection);
    const Event event = read_event(tx, request.body);
    auto response = handle(tx, event);
    tx.commit();
    return response;
}

}  // namespace webhooks
