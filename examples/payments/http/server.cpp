#include "server.hpp"

#include <signal.h>
#include <sys/socket.h>

#include <chrono>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "access_log.hpp"
#include "error_documents.hpp"

namespace http {
namespace {

constexpr std::size_t kLargestBody = 2 << 20;

sigset_t block_end_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    return signals;
}

// httplib forgets a stop() that comes before it has begun to listen.
void stop(httplib::Server& server) {
    constexpr std::chrono::milliseconds kGlance{1};
    for (int i = 0; i < 1000 && !server.is_running(); ++i) std::this_thread::sleep_for(kGlance);
    server.stop();
}

// stop() must not be called from a signal handler, so a thread waits for the signal.
class EndSignal {
  public:
    EndSignal(const sigset_t& signals, httplib::Server& server)
        : waiter_([signals, &server] {
              int number = 0;
              sigwait(&signals, &number);
              stop(server);
          }) {}
    ~EndSignal() {
        pthread_kill(waiter_.native_handle(), SIGTERM);  // where listening ended by itself
        waiter_.join();
    }

  private:
    std::thread waiter_;
};

// A server that is started again finds its port free. httplib's own option, SO_REUSEPORT, would
// also let two servers have one, and each would get some of the other's requests.
void keep_port(socket_t socket) {
    constexpr int kYes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &kYes, sizeof(kYes));
}

}  // namespace

// One request per connection: httplib gives a thread to each open connection, so clients that keep
// theirs open without a request would starve the others.
Server::Server(std::size_t threads) {
    server_.new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
    server_.set_keep_alive_max_count(1);
    server_.set_payload_max_length(kLargestBody);
    server_.set_tcp_nodelay(true);
    server_.set_socket_options(keep_port);
}

void Server::run(const Address& address) {
    signal(SIGPIPE, SIG_IGN);
    const sigset_t signals = block_end_signals();
    AccessLog log(std::cerr);
    log.watch(server_);
    answer_errors_with_documents(server_, routes_, log);
    const int port = bind(address);
    server_.lengthen_queue();
    std::cout << "listening on " << address.host << ':' << port << std::endl;
    const EndSignal end(signals, server_);
    server_.listen_after_bind();
}

int Server::bind(const Address& address) {
    if (address.port == 0) {
        const int port = server_.bind_to_any_port(address.host);
        if (port > 0) return port;
    } else if (server_.bind_to_port(address.host, address.port)) {
        return address.port;
    }
    throw std::runtime_error("can't listen on " + address.host + ":" +
                             std::to_string(address.port));
}

// httplib lets five connections wait. In a burst, the others would come again a second later.
void Server::Httplib::lengthen_queue() {
    ::listen(svr_sock_, SOMAXCONN);
}

}  // namespace http
