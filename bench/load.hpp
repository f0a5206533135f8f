// The load generator: clients, each a thread with a connection, that do the same work over and
// over, and a histogram of how long each call took.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "connection.hpp"
#include "histogram.hpp"

namespace idem::bench {

// One call, from a client's own connection. Throws if the answer is not the expected one.
using Work = std::function<void()>;
// Prepares a connection's statements and returns what to do on it.
using WorkFactory = std::function<Work(Connection&)>;

struct Pace {
    int clients;
    // Calls per second of all clients together; 0: each client goes as fast as it is answered.
    // With a rate, a latency counts from the moment the call was due, so that a call that a slow
    // one held up counts as slow, too.
    double rate;
};

class Load {
  public:
    Load(const Pace& pace, const WorkFactory& factory);
    ~Load();
    Load(const Load&) = delete;
    Load& operator=(const Load&) = delete;

    // The calls that have ended since the last time. Throws what a client has died of.
    Histogram take();

  private:
    struct Client {
        std::mutex mutex;
        Histogram histogram;
        std::exception_ptr error;
        std::thread thread;
    };

    void live(Client& client, int number, const WorkFactory& factory);
    void work_freely(Client& client, const Work& work);
    void work_at_rate(Client& client, int number, const Work& work);

    const Pace pace_;
    std::atomic<bool> stopping_{false};
    std::vector<Client> clients_;
};

// Takes the load's histogram every second, for as long as `go_on` says so.
std::vector<Histogram> every_second(Load& load, const std::function<bool()>& go_on);
std::vector<Histogram> for_seconds(Load& load, int seconds);
Histogram sum(const std::vector<Histogram>& seconds);

}  // namespace idem::bench
