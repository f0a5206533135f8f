// payments_service: a stateless process. Any number of them can share one database.
#include <idempotency/problem.hpp>
#include <iostream>

#include "http/command_line.hpp"
#include "http/server.hpp"
#include "payments.hpp"
#include "transfers.hpp"
#include "webhooks.hpp"

namespace payments {
namespace {

using idempotency::Options;

constexpr char kUsage[] =
    "usage: payments_service --listen HOST:PORT --database CONNINFO --gateway URL\n"
    "                        [--lease MS] [--database-timeout MS] [--gateway-timeout MS]\n"
    "                        [--test-cards]\n";
constexpr std::size_t kThreads = 64;
constexpr int kTransfers =
    32;  // at once: the other threads are for routes that only use the database
constexpr std::size_t kConnections = 32;
constexpr std::size_t kLargestBody = 2 << 20;

std::chrono::milliseconds milliseconds(const http::CommandLine& arguments, const char* name,
                                       int otherwise) {
    return std::chrono::milliseconds(arguments.number(name, otherwise));
}

// A request never uses two connections at once.
idempotency::PoolOptions pool_options(const http::CommandLine& arguments) {
    idempotency::PoolOptions options;
    options.size = kConnections;
    options.timeout = milliseconds(arguments, "--database-timeout", 10000);
    options.patience = options.timeout / 2;
    options.longest_loan = 2 * options.timeout;
    return options;
}

Options options_for(const std::string& scope) {
    Options options;
    options.scope = scope;
    options.principal = tenant_of;
    options.max_request_bytes = kLargestBody;
    return options;
}

// Refuses what jsonb can't hold: a scope with excluded fields fails with it. The parser takes a NUL
// for the end of the text. Without a usable key the body has not been read.
bool is_json(const std::string& body) {
    return body.find('\0') == std::string::npos && body.find("\\u0000") == std::string::npos &&
           json::accept(body);
}

idempotency::Route json_only(idempotency::Route route) {
    route.answer = [answer = std::move(route.answer), refuses = route.refuses](
                       const idempotency::Request& request, const std::string& principal) {
        const bool usable = is_json(request.body) || refuses(request);
        return usable ? answer(request, principal) : idempotency::bad_json();
    };
    return route;
}

// The objects outlive the server.
void add_routes(http::Server& server, Pool& pool, Transfers& transfers, const TestCards& cards,
                std::chrono::milliseconds lease) {
    const idempotency::Idempotent<Driver> idempotent(pool);
    // Clients put the time of sending into the body, so a retry differs in that field only.
    auto payment = options_for("POST /payments");
    payment.exclude = {"client_sent_at"};
    const auto pay = [&cards](Driver::Transaction& tx, const Exchange& call) {
        return create_payment(tx, call, cards);
    };
    auto leased = options_for("POST /transfers");
    leased.lease = lease;
    const auto transfer = [&transfers](idempotency::LeasedClaim<Driver> claim,
                                       const Exchange& call) {
        return transfers.create(std::move(claim), call);
    };
    const auto event = [&pool](const idempotency::Request& request, const std::string&) {
        return receive(pool, request);
    };
    const auto transfer_route = json_only(idempotent.leased(leased, transfer));
    server.Post("/payments",
                idempotency::protect(json_only(idempotent.transactional(payment, pay))));
    server.Post("/transfers", idempotency::protect(http::at_most(kTransfers, transfer_route)));
    server.Post("/webhooks", idempotency::protect({nullptr, kLargestBody, event}));
    server.Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
        response.set_content(R"({"status":"ok"})", "application/json");
    });
}

void serve(const http::CommandLine& arguments) {
    http::Server server(kThreads);
    Pool pool(arguments.required("--database"), pool_options(arguments),
              connection_setup("payments_service " + std::to_string(getpid())));
    const TestCards cards(arguments.has("--test-cards"));
    Transfers transfers(arguments.required("--gateway"),
                        milliseconds(arguments, "--gateway-timeout", 30000), cards);
    add_routes(server, pool, transfers, cards, milliseconds(arguments, "--lease", 5000));
    // A request that is still at work: its claim ends with us, or with its lease.
    server.run(arguments.required("--listen"));
}

}  // namespace
}  // namespace payments

int main(int argc, char** argv) try {
    payments::serve({argc,
                     argv,
                     {"--listen", "--database", "--gateway", "--lease", "--database-timeout",
                      "--gateway-timeout"},
                     {"--test-cards"}});
} catch (const std::exception& failure) {
    std::cerr << "payments_service: " << failure.what() << '\n' << payments::kUsage;
    return 2;
}
