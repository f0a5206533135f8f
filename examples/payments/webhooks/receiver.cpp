#include "receiver.hpp"

#include "event.hpp"
#include "flaky.hpp"
#include "payment_events.hpp"

namespace webhooks {
namespace {

httplib::Response acknowledged() {
    httplib::Response response;
    response.status = 204;
    return response;
}

httplib::Response handle(pqxx::work& tx, const Event& event) {
    if (event.type == "flaky") return handle_flaky(tx, event);
    if (event.type.rfind("payment.", 0) == 0) apply_once(tx, event);
    return acknowledged();  // also what nobody here cares for: or it would come again for ever
}

}  // namespace

httplib::Response receive(idempotency::ConnectionPool& pool, const httplib::Request& request) {
    const auto connection = pool.lend();
    pqxx::work tx(**connection);
    const Event event = read_event(tx, request.body);
    auto response = handle(tx, event);
    tx.commit();
    return response;
}

}  // namespace webhooks
