// payments_service: a stateless process. Any number of them can share one database.
#include <unistd.h>

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
    "                        [--threads N] [--lease MS] [--database-timeout MS]\n"
    "                        [--gateway-timeout MS] [--test-cards]\n";
constexpr int kThreads = 16;
constexpr std::size_t kLargestBody = 2 << 20;

std::chrono::milliseconds milliseconds(const http::CommandLine& arguments, const char* name,
                                       int otherwise) {
    return std::chrono::milliseconds(arguments.number(name, otherwise));
}

// A connection for each thread of both lanes; a request never uses two at once.
idempotency::PoolOptions pool_options(const http::CommandLine& arguments, std::size_t threads) {
    idempotency::PoolOptions options;
    options.size = 2 * threads;
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

// Handlers that call the gateway and those that only use the database have separate threads. The
// objects outlive the server.
void add_routes(http::Server& server, http::Lane& database, http::Lane& gateway, Pool& pool,
                Transfers& transfers, const TestCards& cards, std::chrono::milliseconds lease) {
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
    const auto health = [](const idempotency::Request&, const std::string&) {
        return json_response(200, {{"status", "ok"}});
    };
    auto& routes = server.routes();
    routes.add("POST", "/payments", json_only(idempotent.transactional(payment, pay)), &database);
    routes.add("POST", "/transfers", json_only(idempotent.leased(leased, transfer)), &gateway);
    routes.add("POST", "/webhooks", {nullptr, kLargestBody, event}, &database);
    routes.add("GET", "/healthz", {nullptr, 0, health});
}

void serve(const http::CommandLine& arguments) {
    http::Server server;
    const auto threads = static_cast<std::size_t>(arguments.number("--threads", kThreads));
    Pool pool(arguments.required("--database"), pool_options(arguments, threads),
              connection_setup("payments_service " + std::to_string(getpid())));
    const TestCards cards(arguments.has("--test-cards"));
    Transfers transfers(arguments.required("--gateway"),
                        milliseconds(arguments, "--gateway-timeout", 30000), cards);
    http::Lane database(threads), gateway(threads);
    add_routes(server, database, gateway, pool, transfers, cards,
               milliseconds(arguments, "--lease", 5000));
    const bool ended = server.run(http::parse_address(arguments.required("--listen")));
    if (!ended) _exit(1);  // a request is still at work: its claim ends with us, or with its lease
}

}  // namespace
}  // namespace payments

int main(int argc, char** argv) try {
    payments::serve({argc,
                     argv,
                     {"--listen", "--database", "--gateway", "--threads", "--lease",
                      "--database-timeout", "--gateway-timeout"},
                     {"--test-cards"}});
} catch (const std::exception& failure) {
    std::cerr << "payments_service: " << failure.what() << '\n' << payments::kUsage;
    return 2;
}
