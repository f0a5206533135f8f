#include "routes.hpp"

#include "answers.hpp"
#include "estimates.hpp"
#include "idempotency/idempotent.hpp"
#include "refunds.hpp"
#include "tenant.hpp"
#include "webhooks/receiver.hpp"

namespace payments {
namespace {

using idempotency::Call;
using idempotency::Idempotent;
using idempotency::Keys;
using idempotency::Options;

constexpr char kPayment[] = "/payments/([A-Za-z0-9_]{1,100})";

Options options_for(const std::string& scope) {
    Options options;
    options.scope = scope;
    options.principal = tenant_of;
    return options;
}

// Clients put the time of sending into the body, so a retry differs there and nowhere else.
Options payment_options() {
    Options options = options_for("POST /payments");
    options.exclude = {"client_sent_at"};
    return options;
}

// A duplicate rather waits for the answer than hears that there will be one.
Options refund_options() {
    Options options = options_for("POST /refunds");
    options.wait = std::chrono::seconds(5);
    return options;
}

Options description_options() {
    Options options = options_for("PATCH /payments");
    options.keys = Keys::Generated;
    return options;
}

Options transfer_options(std::chrono::milliseconds lease) {
    Options options = options_for("POST /transfers");
    options.lease = lease;
    return options;
}

// Worth answering without protection: an estimate twice is an estimate.
Options estimate_options() {
    Options options = options_for("POST /estimates");
    options.keys = Keys::Optional;
    options.ttl = std::chrono::minutes(1);
    options.without_database = idempotency::WithoutDatabase::Proceed;
    return options;
}

using Reader = httplib::Response (*)(idempotency::ConnectionPool&, const httplib::Request&);

httplib::Server::Handler reading(idempotency::ConnectionPool& pool, Reader reader) {
    return [&pool, reader](const httplib::Request& request, httplib::Response& response) {
        response = reader(pool, request);
    };
}

void health(const httplib::Request&, httplib::Response& response) {
    response = json_response(200, {{"status", "ok"}});
}

}  // namespace

void add_routes(http::Routes& routes, idempotency::ConnectionPool& pool, const Payments& payments,
                const Transfers& transfers, std::chrono::milliseconds lease) {
    const Idempotent idempotent(pool);
    const auto create_payment = [&payments](pqxx::work& tx, const Call& call) {
        return payments.create(tx, call);
    };
    const auto create_transfer = [&transfers](idempotency::LeasedClaim& claim, const Call& call) {
        return transfers.create(claim, call);
    };
    routes.post("/payments", idempotent(create_payment, payment_options()));
    routes.post("/refunds", idempotent(create_refund, refund_options()));
    routes.patch(kPayment, idempotent(describe_payment, description_options()));
    routes.post("/transfers", idempotent(create_transfer, transfer_options(lease)));
    routes.post("/estimates", idempotent(estimate, estimate_options()));
    routes.post("/webhooks", reading(pool, webhooks::receive));
    routes.get("/payments", reading(pool, list_payments));
    routes.get(kPayment, reading(pool, show_payment));
    routes.get("/healthz", health);
}

}  // namespace payments
