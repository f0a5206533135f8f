#include "load/patience.hpp"

#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "clock.hpp"

namespace idem::chaos {
namespace {

constexpr Micros kBetweenLooks = 100 * kMillisecond;
constexpr Micros kUntilGivenUp = kSecond;  // after the cancel

// Watches all calls of the program, on a separate thread.
class Watchman {
  public:
    ~Watchman() {
        stop_ = true;
        if (thread_.joinable()) thread_.join();
    }

    void watch(const void* who, pqxx::connection* connection, Micros deadline) {
        const std::lock_guard<std::mutex> guard(mutex_);
        calls_[who] = {connection, deadline, false};
        if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    }

    void forget(const void* who) {
        const std::lock_guard<std::mutex> guard(mutex_);
        calls_.erase(who);
    }

  private:
    struct Watched {
        pqxx::connection* connection;
        Micros deadline;
        bool cancelled;
    };

    void run() {
        for (; !stop_; rest(kBetweenLooks)) {
            const std::lock_guard<std::mutex> guard(mutex_);
            for (auto& [who, call] : calls_)
                if (call.deadline <= now()) end(&call);
        }
    }

    static void end(Watched* call) {
        if (call->cancelled) {
            (void)::shutdown(call->connection->sock(), SHUT_RDWR);
            return;
        }
        call->cancelled = true;
        call->deadline = now() + kUntilGivenUp;
        try {
            call->connection->cancel_query();
        } catch (const std::exception&) {  // the server does not answer
        }
    }

    std::mutex mutex_;
    std::map<const void*, Watched> calls_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

Watchman& watchman() {
    static Watchman one;
    return one;
}

}  // namespace

Patience::Patience(pqxx::connection& connection, Micros patience) : limited_(patience > 0) {
    if (limited_) watchman().watch(this, &connection, now() + patience);
}

Patience::~Patience() {
    if (limited_) watchman().forget(this);
}

bool Warnings::operator()(const char message[]) noexcept {
    // Of a policy that chaos weakens: the change was made.
    if (std::strstr(message, "the change of policy") != nullptr) return false;
    heard_ = true;
    if (std::strstr(message, "might not have been replicated") != nullptr) not_replicated_ = true;
    return false;
}

}  // namespace idem::chaos
