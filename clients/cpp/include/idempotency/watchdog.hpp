// Runs an action at a moment, unless the guard has ended by then. It wakes libraries that wait for
// a peer without a limit.
#pragma once

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace idempotency {

using Clock = std::chrono::steady_clock;

// Its count has no room for the longest of durations, so a longer one is a year.
inline Clock::time_point moment_after(std::chrono::milliseconds duration) {
    return Clock::now() + std::min<std::chrono::milliseconds>(duration, std::chrono::hours(8760));
}

// A thread that blocks all of the process's signals: other threads wait for those.
template <typename Work>
std::thread thread_without_signals(Work work) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread thread(std::move(work));
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return thread;
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
}

class Watchdog {
  public:
    using Action = std::function<void()>;

    // After its end, the action has run or never will.
    class [[nodiscard]] Guard {
      public:
        Guard() = default;
        Guard(Watchdog& dog, std::multimap<Clock::time_point, Action>::iterator place)
            : dog_(&dog), place_(place) {}
        Guard(Guard&& other) noexcept
            : dog_(std::exchange(other.dog_, nullptr)), place_(other.place_) {}
        Guard& operator=(Guard&&) = delete;
        ~Guard() {
            if (dog_ != nullptr) dog_->forget(place_);
        }

      private:
        Watchdog* dog_ = nullptr;
        std::multimap<Clock::time_point, Action>::iterator place_;
    };

    Watchdog() : thread_(thread_without_signals([this] { run(); })) {}
    ~Watchdog() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            ending_ = true;
        }
        changed_.notify_one();
        thread_.join();
    }
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    // The action must be quick, must not throw, and must not call this object.
    Guard at(Clock::time_point moment, Action action) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto place = pending_.emplace(moment, std::move(action));
        changed_.notify_one();
        return Guard(*this, place);
    }

  private:
    using Pending = std::multimap<Clock::time_point, Action>;

    void forget(Pending::iterator place) {
        const std::lock_guard<std::mutex> lock(mutex_);
        pending_.erase(place);
    }

    // An entry stays after its action has run, without it, for its guard to remove.
    void run() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!ending_) {
            if (next() == Clock::time_point::max()) {
                changed_.wait(lock);
            } else if (changed_.wait_until(lock, next()) == std::cv_status::timeout) {
                while (next() <= Clock::now()) bite();
            }
        }
    }

    Clock::time_point next() const {
        for (const auto& [moment, action] : pending_) {
            if (action) return moment;
        }
        return Clock::time_point::max();
    }

    void bite() {
        for (auto& [moment, action] : pending_) {
            if (!action) continue;
            std::exchange(action, nullptr)();
            return;
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    Pending pending_;
    bool ending_ = false;
    std::thread thread_;  // the last member: it uses all others
};

}  // namespace idempotency
