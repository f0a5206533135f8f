// A server process on cpp-httplib: prints its address, and shuts down cleanly on SIGTERM or SIGINT.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <idempotency/httplib.hpp>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace http {

using idempotency::Answer;
using idempotency::Request;
using std::chrono::milliseconds;

class Server : public idempotency::HttplibServer {
  public:
    // Create it before any thread: it blocks the signals for all threads. A connection has a thread
    // until it is answered.
    explicit Server(std::size_t threads) {
        sigemptyset(&signals_);
        sigaddset(&signals_, SIGTERM);
        sigaddset(&signals_, SIGINT);
        pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
        new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
        set_keep_alive_max_count(1);
        set_read_timeout(milliseconds(5000));
        set_write_timeout(milliseconds(10000));
        set_tcp_nodelay(true);
        // The library would set SO_REUSEPORT, which also lets two servers share a port.
        set_socket_options([](socket_t number) {
            const int yes = 1;
            setsockopt(number, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        });
    }

    // "127.0.0.1:8080"; port 0 lets the system choose. Returns after SIGTERM or SIGINT, when all
    // requests are answered. If that takes longer than 10 s, the process ends with status 1. Throws
    // std::runtime_error if it cannot listen.
    void run(const std::string& address) {
        const auto colon = address.rfind(':');
        const auto host = address.substr(0, colon);
        int port = colon == address.npos ? -1 : std::atoi(address.c_str() + colon + 1);
        if (port == 0) {
            port = bind_to_any_port(host);
        } else if (port > 0 && !bind_to_port(host, port)) {
            port = -1;
        }
        // The library's queue has room for five clients.
        if (port < 0 || ::listen(svr_sock_, SOMAXCONN) != 0) {
            throw std::runtime_error("can't listen on " + address);
        }
        std::cout << "listening on " << host << ':' << port << std::endl;
        std::thread([this] {
            int signal = 0;
            sigwait(&signals_, &signal);
            stop();
            std::this_thread::sleep_for(std::chrono::seconds(10));
            _exit(1);
        }).detach();
        listen_after_bind();
    }

  private:
    sigset_t signals_;
};

// Answers 503 beyond so many requests at once, so that slow work leaves threads for other routes.
inline idempotency::Route at_most(int most, idempotency::Route route) {
    const auto running = std::make_shared<std::atomic<int>>(0);
    route.answer = [most, running, answer = std::move(route.answer)](const Request& request,
                                                                     const std::string& principal) {
        const std::shared_ptr<void> end(nullptr, [running](void*) { --*running; });
        return ++*running > most ? idempotency::unavailable() : answer(request, principal);
    };
    return route;
}

}  // namespace http
