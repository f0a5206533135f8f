#include "routes.hpp"

#include "answers.hpp"
#include "estimates.hpp"
#include "json_body.hpp"
#include "refunds.hpp"
#include "tenant.hpp"
#include "webhooks/receiver.hpp"

namespace payments {
namespace {

using idempotency::Exchange;
using idempotency::MissingKey;
using idempotency::Options;
using idempotency::Request;
using idempotency::Route;
using Claim = idempotency::LeasedClaim<Driver>;

constexpr char kPayment[] = "/payments/[A-Za-z0-9_]{1,100}";
constexpr std::size_t kLargestBody = 2 << 20;

Options options_for(const std::string& scope) {
    Options options;
    options.scope = scope;
    options.principal = tenant_of;
    options.max_request_bytes = kLargestBody;
    return options;
}

// Clients put the time of sending into the body, so a retry differs in that field only.
Options payment_options() {
    Options options = options_for("POST /payments");
    options.exclude = {"client_sent_at"};
    return options;
}

// A duplicate waits for the answer instead of getting 409.
Options refund_options() {
    Options options = options_for("POST /refunds");
    options.wait = std::chrono::seconds(5);
    return options;
}

Options description_options() {
    Options options = options_for("PATCH /payments");
    options.missing_key = MissingKey::Generate;
    return options;
}

Options transfer_options(std::chrono::milliseconds lease) {
    Options options = options_for("POST /transfers");
    options.lease = lease;
    return options;
}

// May run without protection: a second estimate does no harm.
Options estimate_options() {
    Options options = options_for("POST /estimates");
    options.missing_key = MissingKey::Pass;
    options.ttl = std::chrono::minutes(1);
    options.unprotected_without_database = true;
    return options;
}

using Reader = idempotency::Answer (*)(Pool&, const Request&, const std::string& tenant);

Route reading(Pool& pool, Reader reader) {
    return {tenant_of, 0, [&pool, reader](const Request& request, const std::string& tenant) {
                return answered([&] { return reader(pool, request, tenant); });
            }};
}

// A real receiver would verify the sender's signature first.
Route receiving(Pool& pool) {
    return {nullptr, kLargestBody, [&pool](const Request& request, const std::string&) {
                return answered([&] { return webhooks::receive(pool, request); });
            }};
}

Route health() {
    return {nullptr, 0, [](const Request&, const std::string&) {
                return json_response(200, {{"status", "ok"}});
            }};
}

}  // namespace

void add_routes(http::Routes& routes, Lanes lanes, Pool& pool, const Payments& payments,
                const Transfers& transfers, std::chrono::milliseconds lease) {
    const idempotency::Idempotent<Driver> idempotent(pool);
    const auto create_payment = [&payments](pqxx::work& tx, const Exchange& call) {
        return payments.create(tx, call);
    };
    const auto create_transfer = [&transfers](Claim claim, const Exchange& call) {
        return transfers.create(std::move(claim), call);
    };
    const auto make_estimate = [](pqxx::work*, const Exchange& call) { return estimate(call); };
    const auto protect = [&](const char* method, const char* path, Route route, http::Lane& lane) {
        routes.add(method, path, json_only(std::move(route)), &lane);
    };
    protect("POST", "/payments", idempotent.transactional(payment_options(), create_payment),
            lanes.database);
    protect("POST", "/refunds", idempotent.transactional(refund_options(), create_refund),
            lanes.database);
    protect("PATCH", kPayment, idempotent.transactional(description_options(), describe_payment),
            lanes.database);
    protect("POST", "/transfers", idempotent.leased(transfer_options(lease), create_transfer),
            lanes.gateway);
    protect("POST", "/estimates", idempotent.plain(estimate_options(), make_estimate),
            lanes.database);
    routes.add("POST", "/webhooks", receiving(pool), &lanes.database);
    routes.add("GET", "/payments", reading(pool, list_payments), &lanes.database);
    routes.add("GET", kPayment, reading(pool, show_payment), &lanes.database);
    routes.add("GET", "/healthz", health());
}

}  // namespace payments
