#include "services.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <stdexcept>

namespace payments {
namespace {

std::string address(int port) {
    return "127.0.0.1:" + std::to_string(port);
}

bool is_free(int port) {
    const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<std::uint16_t>(port));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool bound = bind(probe, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0;
    close(probe);
    return bound;
}

// A service that is killed has to find its port free again, so it is not one of those that the
// system gives to outgoing connections (from 32768 on).
int free_port() {
    constexpr int kTries = 1000;
    std::random_device device;
    std::uniform_int_distribution<int> port(20000, 32000);
    for (int i = 0; i < kTries; ++i) {
        const int candidate = port(device);
        if (is_free(candidate)) return candidate;
    }
    throw std::runtime_error("no free port");
}

Command gateway_command(const Options& options, int port) {
    return {{options.bin + "/payments_gateway", "--listen", address(port)}, options.log};
}

// A thread for each client's connection, and for those that the clients have given up.
Command service_command(const Options& options, int port, int gateway_port) {
    return {{options.bin + "/payments_service", "--listen", address(port), "--database",
             options.database, "--gateway", "http://" + address(gateway_port), "--threads",
             std::to_string(options.workers + 4), "--test-cards"},
            options.log};
}

}  // namespace

Services::Services(const Options& options)
    : ports_{free_port(), free_port()},
      gateway_port_(free_port()),
      gateway_(gateway_command(options, gateway_port_)),
      services_{Program(service_command(options, ports_[0], gateway_port_)),
                Program(service_command(options, ports_[1], gateway_port_))} {
    gateway_.start();
    for (auto& one : services_) one.start();
    gateway_.await_listening();
    for (auto& one : services_) one.await_listening();
}

std::vector<std::string> Services::urls() const {
    std::vector<std::string> urls;
    for (const int port : ports_) urls.push_back("http://" + address(port));
    return urls;
}

std::string Services::gateway_url() const {
    return "http://" + address(gateway_port_);
}

void Services::check_alive() {
    gateway_.check_alive();
    for (auto& one : services_) one.check_alive();
}

void Services::stop() {
    for (auto& one : services_) one.stop();
    gateway_.stop();
}

}  // namespace payments
