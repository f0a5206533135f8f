// Hears NOTIFY, on a connection of its own.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "pool.hpp"

namespace idempotency {

// Pauses after failures double up to this.
inline constexpr std::chrono::milliseconds kLongestPause{30000};

inline std::chrono::milliseconds longer(std::chrono::milliseconds pause) {
    return std::max(pause, std::min(pause * 2, kLongestPause));
}

template <typename Driver>
class Listener {
  public:
    using Notice = std::function<void()>;  // called from a separate thread; must not throw

    // Notifications that were sent while nothing listened are lost: so `on_notice` is also called
    // when it begins to listen. Throws std::system_error if no thread can be started.
    Listener(Pool<Driver>& pool, std::string channel, std::chrono::milliseconds pause,
             Notice on_notice)
        : pool_(pool),
          channel_(std::move(channel)),
          pause_(pause),
          on_notice_(std::move(on_notice)),
          thread_(thread_without_signals([this] { run(); })) {}

    ~Listener() {
        ending_.reset();
        thread_.join();
    }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

  private:
    using Connection = typename Driver::Connection;

    // A pipe: `wait` sees it end.
    class Ending {
      public:
        Ending() {
            if (pipe2(ends_, O_CLOEXEC) != 0) {
                throw std::system_error(errno, std::generic_category(), "pipe2");
            }
        }
        ~Ending() {
            reset();
            close(ends_[0]);
        }
        Ending(const Ending&) = delete;
        Ending& operator=(const Ending&) = delete;

        void reset() {
            if (ends_[1] >= 0) close(std::exchange(ends_[1], -1));
        }

        // Until the socket has something to read, if there is one. False if it is the end.
        bool wait(int socket, std::chrono::milliseconds patience) const {
            pollfd watched[] = {{ends_[0], POLLIN, 0}, {socket, POLLIN, 0}};
            poll(watched, 2, static_cast<int>(patience.count()));
            return watched[0].revents == 0;
        }

      private:
        int ends_[2] = {-1, -1};
    };

    void run() {
        auto pause = pause_;
        do {
            try {
                const auto connection = pool_.connect();
                listen(*connection);
                pause = pause_;
                on_notice_();
                hear(*connection);
            } catch (const std::exception&) {  // its owner polls, and tells of a database away
            }
        } while (ending_.wait(-1, std::exchange(pause, longer(pause))));
    }

    void listen(Connection& connection) {
        PGconn* raw = Driver::raw(connection);
        std::atomic<bool> cut{false};
        const auto limit = pool_.cut_at(Clock::now() + pool_.options().timeout, connection, cut);
        const std::unique_ptr<char, void (*)(void*)> name(
            PQescapeIdentifier(raw, channel_.data(), channel_.size()), PQfreemem);
        if (!name) detail::throw_error(raw, nullptr);
        detail::execute(raw, {("LISTEN " + std::string(name.get())).c_str(), {}});
    }

    // Until the connection is lost, or this object ends.
    void hear(Connection& connection) {
        constexpr std::chrono::milliseconds kForever{-1};
        PGconn* raw = Driver::raw(connection);
        while (ending_.wait(PQsocket(raw), kForever) && PQconsumeInput(raw) == 1) {
            bool heard = false;
            while (PGnotify* notice = PQnotifies(raw)) {
                PQfreemem(notice);
                heard = true;
            }
            if (heard) on_notice_();
        }
    }

    Pool<Driver>& pool_;
    const std::string channel_;
    const std::chrono::milliseconds pause_;
    const Notice on_notice_;
    Ending ending_;
    std::thread thread_;  // the last member: it uses all others
};

}  // namespace idempotency
