// A server process: listens, says where, and ends in good order on SIGTERM or SIGINT.
//
// One thread reads and writes all connections, so those that are slow cost nothing but a place;
// complete requests are worked on in the lanes of their routes.
#pragma once

#include <signal.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "address.hpp"
#include "connection.hpp"
#include "routes.hpp"

namespace http {

struct Limits {
    std::chrono::milliseconds request{10000};  // to arrive, from the first byte to the last
    std::chrono::milliseconds answer{10000};   // to be taken by the client
    std::chrono::milliseconds linger{1000};    // of what is still sent after the answer
    std::chrono::milliseconds end{10000};      // of what is being worked on, after SIGTERM
};

class Server {
  public:
    // To be made before any thread is started: it blocks the signals, for all.
    explicit Server(Limits limits = {});
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    Routes& routes() { return routes_; }

    // Prints "listening on HOST:PORT", or `ready`, when it does; returns after SIGTERM or SIGINT.
    // False if some request could not be ended in time: then its thread is still busy, and the
    // process should _exit. Throws std::runtime_error when it can't listen.
    bool run(const Address& address, const std::string& ready = "");

  private:
    using Connections = std::vector<std::shared_ptr<Connection>>;

    int bind(const Address& address);
    void wait();
    void accept_all();
    void serve(const std::shared_ptr<Connection>& connection, short events);
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

    // What the lanes leave; they may outlive this object where they could not be ended.
    struct Finished {
        std::mutex mutex;
        std::vector<std::pair<std::shared_ptr<Connection>, Answer>> answers;
    };
    std::shared_ptr<Finished> finished_ = std::make_shared<Finished>();
};

}  // namespace http
