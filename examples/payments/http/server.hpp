// A server process: listens, prints its address, and shuts down cleanly on SIGTERM or SIGINT.
//
// One thread reads and writes all connections, so a slow connection costs only its place. The lanes
// of the routes work on complete requests.
#pragma once

#include <signal.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "connection.hpp"
#include "routes.hpp"

namespace http {

// Where a server listens: "127.0.0.1:8080"; port 0 lets the system choose.
struct Address {
    std::string host;
    int port = 0;
};

// Throws std::invalid_argument.
Address parse_address(const std::string& text);

struct Limits {
    std::chrono::milliseconds request{10000};  // to arrive, from the first byte to the last
    std::chrono::milliseconds answer{10000};   // to be taken by the client
    std::chrono::milliseconds linger{1000};    // for bytes that arrive after the answer
    std::chrono::milliseconds end{10000};      // for work in progress, after SIGTERM
};

class Server {
  public:
    // Create it before any thread: it blocks the signals for all threads.
    explicit Server(Limits limits = {});
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    Routes& routes() { return routes_; }

    // Prints "listening on HOST:PORT", or `ready`, when it listens; returns after SIGTERM or
    // SIGINT. False if a request could not be ended in time: its thread is still busy, and the
    // process should _exit. Throws std::runtime_error if it cannot listen.
    bool run(const Address& address, const std::string& ready = "");

  private:
    using Connections = std::vector<std::shared_ptr<Connection>>;

    int bind(const Address& address);
    void wait();
    void accept_all();
    void serve(const std::shared_ptr<Connection>& connection);
    void begin_work(const std::shared_ptr<Connection>& connection);
    void give(Connection& connection, const Answer& answer);
    void take_answers();
    void begin_end();
    bool is_working() const;

    const Limits limits_;
    Routes routes_;
    int signals_ = -1;
    int listener_ = -1;
    int wake_[2] = {-1, -1};
    bool ending_ = false;
    Clock::time_point end_;
    Connections connections_;

    // The answers of the lanes; they may outlive this object if a lane could not be ended.
    struct Finished {
        std::mutex mutex;
        std::vector<std::pair<std::shared_ptr<Connection>, Answer>> answers;
    };
    std::shared_ptr<Finished> finished_ = std::make_shared<Finished>();
};

}  // namespace http
