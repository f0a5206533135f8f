// Keeps a lease alive while its holder works.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "pool.hpp"
#include "protocol.hpp"

namespace idempotency {

// The state of a lease, for the work. The lease may have expired after the server's time, counted
// from the moment at which the last successful request was sent: so this deadline never outlasts
// the server's. A failed beat does not tell who owns the claim.
class Lease {
  public:
    Lease(Clock::time_point sent, Milliseconds duration)
        : duration_(duration), ends_(sent + duration) {}

    bool lost() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return lost_ || Clock::now() >= ends_;
    }

    // Whether the work is to stop: the lease is lost, or its program ends.
    bool is_to_stop() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return lost_ || stopped_ || Clock::now() >= ends_;
    }

    // True as soon as the work is to stop; false if it is not for that long.
    bool wait_for_stop(Milliseconds patience) const {
        std::unique_lock<std::mutex> lock(mutex_);
        const auto until = Clock::now() + patience;
        const auto stops = [this] { return lost_ || stopped_ || Clock::now() >= ends_; };
        while (!stops() && Clock::now() < until) changed_.wait_until(lock, std::min(ends_, until));
        return stops();
    }

    void prolonged(Clock::time_point sent) {
        const std::lock_guard<std::mutex> lock(mutex_);
        ends_ = std::max(ends_, sent + duration_);
        changed_.notify_all();
    }

    void lose() {
        const std::lock_guard<std::mutex> lock(mutex_);
        lost_ = true;
        changed_.notify_all();
    }

    void stop() {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopped_ = true;
        changed_.notify_all();
    }

    Clock::time_point ends() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return ends_;
    }
    Milliseconds duration() const noexcept { return duration_; }

  private:
    const Milliseconds duration_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    Clock::time_point ends_;
    bool lost_ = false, stopped_ = false;
};

// Sends beats from a separate thread, over a separate connection: the holder's may be busy for
// longer than the lease. Both end with the object.
template <typename Driver>
class Heartbeat {
  public:
    using Notice = std::function<void()>;  // called once, from the thread, when the lease is lost

    // At `limit` the holder has had its time: `on_late` ends the claim, and the lease counts as
    // lost. Throws std::system_error if no thread can be started.
    Heartbeat(Pool<Driver>& pool, Lease& lease, ClaimId claim, Notice on_lost,
              Clock::time_point limit, Notice on_late)
        : pool_(pool),
          lease_(lease),
          claim_(std::move(claim)),
          on_lost_(std::move(on_lost)),
          limit_(limit),
          on_late_(std::move(on_late)),
          thread_(thread_without_signals([this] { run(); })) {}

    ~Heartbeat() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
        }
        stop_.notify_one();
        thread_.join();
    }
    Heartbeat(const Heartbeat&) = delete;
    Heartbeat& operator=(const Heartbeat&) = delete;

  private:
    // A beat comes at a third of the lease; after a failed one, the next comes a tenth of the lease
    // later. So two more may fail before the lease expires. The first beat makes the connection:
    // most claims end before it and never need one.
    void run() {
        std::unique_ptr<typename Driver::Connection> connection;
        auto next = lease_.ends() - lease_.duration() * 2 / 3;
        while (!lease_.lost() && pause_until(std::min({next, lease_.ends(), limit_}))) {
            const auto sent = Clock::now();
            if (lease_.lost()) break;
            if (sent >= limit_) {
                notify(on_late_);
                lease_.lose();
                break;
            }
            if (beat(connection)) {
                lease_.prolonged(sent);
                next = sent + lease_.duration() / 3;
            } else {
                connection.reset();
                next = Clock::now() + lease_.duration() / 10;
            }
        }
        if (lease_.lost()) notify(on_lost_);
    }

    // False when the thread should end.
    bool pause_until(Clock::time_point moment) {
        std::unique_lock<std::mutex> lock(mutex_);
        return !stop_.wait_until(lock, moment, [this] { return stopping_; });
    }

    // A beat without an answer after a sixth of the lease has failed.
    bool beat(std::unique_ptr<typename Driver::Connection>& connection) try {
        if (!connection) connection = pool_.connect();
        std::atomic<bool> cut{false};
        const auto guard = pool_.cut_at(Clock::now() + lease_.duration() / 6, *connection, cut);
        const auto run = [&](const char* sql, const Values& values) {
            return Driver::run_alone(*connection, sql, values);
        };
        protocol::extend(run, claim_);
        return true;
    } catch (const std::exception& error) {
        if (failure_of<Driver>(error).is_lost_claim()) lease_.lose();
        return false;
    }

    static void notify(const Notice& notice) noexcept try {
        if (notice) notice();
    } catch (...) {  // a hook's exception is ignored
    }

    Pool<Driver>& pool_;
    Lease& lease_;
    const ClaimId claim_;
    const Notice on_lost_;
    const Clock::time_point limit_;
    const Notice on_late_;
    std::mutex mutex_;
    std::condition_variable stop_;
    bool stopping_ = false;
    std::thread thread_;  // the last member: it uses all others
};

}  // namespace idempotency
