// Looks over the sweepers' shoulders, from a thread and a connection of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>

#include "harness/connection.hpp"
#include "harness/histogram.hpp"

namespace idem::bench {

class SweeperWatch {
  public:
    // Watches until `rows` more records of the scope have been swept.
    SweeperWatch(std::string scope, std::int64_t rows);
    ~SweeperWatch();
    SweeperWatch(const SweeperWatch&) = delete;
    SweeperWatch& operator=(const SweeperWatch&) = delete;

    // Throws what watching has failed with.
    bool drained() const;
    // From the start of watching until the last row was gone.
    double drain_seconds() const { return drain_seconds_; }
    // The greatest age of a sweeper's transaction that was seen. Samples are kSampleMillis apart,
    // so that the true one is at most that much longer.
    double longest_transaction_seconds() const { return longest_; }

    static constexpr int kSampleMillis = 20;

  private:
    void watch();
    void sample(Connection& connection);

    const std::string scope_;
    Connection connection_;
    const std::int64_t target_;
    std::atomic<bool> stopping_{false};
    std::atomic<bool> finished_{false};
    std::atomic<double> drain_seconds_{0};
    std::atomic<double> longest_{0};
    std::exception_ptr error_;
    std::thread thread_;
};

}  // namespace idem::bench
