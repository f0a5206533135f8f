// The load generator: clients, each a thread with a connection, that do the same work over and
// over, and a histogram of how long each call took.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "harness/client.hpp"
#include "harness/histogram.hpp"

namespace idem::bench {

// One call of a client's. Throws if the answer is not the expected one.
using Work = std::function<void()>;
// Prepares a client's statements and returns what it does.
using WorkFactory = std::function<Work(Client&)>;

struct Pace {
    int clients;
    // Calls per second of all clients together; 0: each client goes as fast as it is answered.
    // With a rate, a latency counts from the moment the call was due, so that a call that a slow
    // one held up counts as slow, too.
    double rate = 0;
};

class Load {
  public:
    Load(const Pace& pace, const WorkFactory& factory, const Session& session = {});
    ~Load();
    Load(const Load&) = delete;
    Load& operator=(const Load&) = delete;

    // The calls that have ended since the last time. Throws what a client has died of.
    Histogram take();

  private:
    struct Worker {
        std::mutex mutex;
        Histogram histogram;
        std::exception_ptr error;
        std::thread thread;
    };

    void live(Worker& worker, int number, const WorkFactory& factory);
    void work_freely(Worker& worker, const Work& work);
    void work_at_rate(Worker& worker, int number, const Work& work);

    const Pace pace_;
    const Session session_;
    std::atomic<bool> stopping_{false};
    std::vector<Worker> workers_;
};

// What the calls of a stretch of time came to.
struct Sample {
    Histogram calls;
    double seconds;

    double per_second() const { return static_cast<double>(calls.count()) / seconds; }
};

// Lets the load work for as long as it takes to get warm, then measures.
Sample measure(Load& load, std::chrono::milliseconds warm_up, std::chrono::milliseconds slice);

// Takes the load's histogram every second, for as long as `go_on` says so.
std::vector<Histogram> every_second(Load& load, const std::function<bool()>& go_on);
std::vector<Histogram> for_seconds(Load& load, int seconds);
Histogram sum(const std::vector<Histogram>& seconds);
// The calls of the busiest `window` seconds on end, divided by those of the last `window`; at
// least 1.
double busiest_over_last(const std::vector<Histogram>& seconds, int window);

}  // namespace idem::bench
