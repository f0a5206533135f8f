// Waits for signals in a thread of its own.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <initializer_list>
#include <thread>
#include <utility>

#include "watchdog.hpp"

namespace idempotency {

// Blocks these signals in the thread that makes it, as long as it lives.
class OnSignals {
  public:
    using Action = std::function<void()>;  // called for each signal, from a separate thread

    OnSignals(std::initializer_list<int> signals, Action action)
        : signals_(set_of(signals)),
          before_(blocked(signals_)),
          last_(*signals.begin()),
          action_(std::move(action)),
          thread_(thread_without_signals([this] { run(); })) {}

    ~OnSignals() {
        ending_ = true;
        pthread_kill(thread_.native_handle(), last_);
        thread_.join();
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    OnSignals(const OnSignals&) = delete;
    OnSignals& operator=(const OnSignals&) = delete;

  private:
    static sigset_t set_of(std::initializer_list<int> signals) {
        sigset_t set;
        sigemptyset(&set);
        for (const int signal : signals) sigaddset(&set, signal);
        return set;
    }

    static sigset_t blocked(const sigset_t& signals) {
        sigset_t before;
        pthread_sigmask(SIG_BLOCK, &signals, &before);
        return before;
    }

    void run() {
        for (int signal = 0; sigwait(&signals_, &signal) == 0 && !ending_;) action_();
    }

    const sigset_t signals_;
    const sigset_t before_;
    const int last_;
    const Action action_;
    std::atomic<bool> ending_{false};
    std::thread thread_;  // the last member: it uses all others
};

}  // namespace idempotency
