// payments_service: a stateless process. Start as many as you like over one database.
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
    "                        [--threads N] [--lease MS] [--test-cards [--crash-dir DIR]]\n";
constexpr int kThreads = 16;
constexpr int kLease = 5000;

// A connection for each thread; a request never uses two at once.
void serve(const http::CommandLine& arguments) {
    const int threads = arguments.number("--threads", kThreads);
    const auto name = "payments_service " + std::to_string(getpid());
    idempotency::ConnectionPool pool(arguments.required("--database"),
                                     static_cast<std::size_t>(threads), connection_setup(name));
    const auto crash_dir =
        arguments.text("--crash-dir", std::filesystem::temp_directory_path().string());
    const TestCards cards(arguments.has("--test-cards"), crash_dir);
    const GatewayClient gateway(arguments.required("--gateway"));
    const Payments payments(cards);
    const Transfers transfers(gateway, cards);
    const std::chrono::milliseconds lease(arguments.number("--lease", kLease));

    http::Server server(static_cast<std::size_t>(threads));
    add_routes(server.routes(), pool, payments, transfers, lease);
    server.run(http::parse_address(arguments.required("--listen")));
}

}  // namespace
}  // namespace payments

int main(int argc, char** argv) try {
    payments::serve({argc,
                     argv,
                     {"--listen", "--database", "--gateway", "--threads", "--lease", "--crash-dir"},
                     {"--test-cards"}});
} catch (const std::exception& failure) {
    std::cerr << "payments_service: " << failure.what() << '\n' << payments::kUsage;
    return 2;
}
