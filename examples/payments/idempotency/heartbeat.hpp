// Keeps a lease alive while its holder works.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "connection_pool.hpp"
#include "protocol.hpp"

namespace idempotency {

// Beats from a thread of its own, over a connection of its own: the holder's may be busy for longer
// than the lease. Both end with the object.
class Heartbeat {
  public:
    Heartbeat(const ConnectionPool& pool, ClaimId claim, std::chrono::milliseconds lease);
    ~Heartbeat();
    Heartbeat(const Heartbeat&) = delete;
    Heartbeat& operator=(const Heartbeat&) = delete;

    // Somebody else has taken the claim over: the holder must have no further effect.
    bool lost() const noexcept { return lost_; }

  private:
    void run();
    bool pause(std::chrono::milliseconds duration);
    bool beat(Connection& connection) noexcept;

    const ConnectionPool& pool_;
    const ClaimId claim_;
    const std::chrono::milliseconds lease_;
    std::atomic<bool> lost_{false};
    std::mutex mutex_;
    std::condition_variable stop_;
    bool stopping_ = false;
    std::thread thread_;  // the last member: it uses all others
};

}  // namespace idempotency
