// payments_service: a stateless process. Any number of them can share one database.
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "database.hpp"
#include "http/command_line.hpp"
#include "http/server.hpp"
#include "routes.hpp"

namespace payments {
namespace {

constexpr char kUsage[] =
    "usage: payments_service --listen HOST:PORT --database CONNINFO --gateway URL\n"
    "                        [--threads N] [--lease MS] [--database-timeout MS]\n"
    "                        [--gateway-timeout MS] [--request-timeout MS]\n"
    "                        [--test-cards [--crash-dir DIR]]\n";
constexpr int kThreads = 16;
constexpr int kLease = 5000;

std::chrono::milliseconds milliseconds(const http::CommandLine& arguments, const char* name,
                                       int otherwise) {
    return std::chrono::milliseconds(arguments.number(name, otherwise));
}

idempotency::PoolOptions pool_options(const http::CommandLine& arguments, std::size_t threads) {
    idempotency::PoolOptions options;
    options.size = 2 * threads;
    options.timeout = milliseconds(arguments, "--database-timeout", 10000);
    options.patience = options.timeout / 2;
    options.longest_loan = 2 * options.timeout;
    return options;
}

// A connection for each thread of both lanes; a request never uses two at once.
void serve(const http::CommandLine& arguments) {
    http::Limits limits;
    limits.request = milliseconds(arguments, "--request-timeout", 10000);
    http::Server server(limits);

    const auto threads = static_cast<std::size_t>(arguments.number("--threads", kThreads));
    const auto name = "payments_service " + std::to_string(getpid());
    Pool pool(arguments.required("--database"), pool_options(arguments, threads),
              connection_setup(name));
    const auto crash_dir =
        arguments.text("--crash-dir", std::filesystem::temp_directory_path().string());
    const TestCards cards(arguments.has("--test-cards"), crash_dir);
    GatewayClient gateway(arguments.required("--gateway"),
                          milliseconds(arguments, "--gateway-timeout", 30000));
    const Payments payments(cards);
    const Transfers transfers(gateway, cards);
    const auto lease = milliseconds(arguments, "--lease", kLease);

    http::Lane database(threads), waiting(threads);
    add_routes(server.routes(), {database, waiting}, pool, payments, transfers, lease);
    const bool ended = server.run(http::parse_address(arguments.required("--listen")));
    if (!ended) _exit(1);  // a request is still at work: its claim ends with us, or with its lease
}

}  // namespace
}  // namespace payments

int main(int argc, char** argv) try {
    payments::serve({argc,
                     argv,
                     {"--listen", "--database", "--gateway", "--threads", "--lease", "--crash-dir",
                      "--database-timeout", "--gateway-timeout", "--request-timeout"},
                     {"--test-cards"}});
} catch (const std::exception& failure) {
    std::cerr << "payments_service: " << failure.what() << '\n' << payments::kUsage;
    return 2;
}
