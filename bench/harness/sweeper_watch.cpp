#include "harness/sweeper_watch.hpp"

#include <algorithm>
#include <chrono>

#include "harness/server.hpp"

namespace idem::bench {
namespace {

constexpr char kAgeOfTransaction[] =
    "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)"
    " FROM pg_stat_get_activity(NULL) a WHERE backend_type = 'idempotency sweeper'";

}  // namespace

SweeperWatch::SweeperWatch(std::string scope, std::int64_t rows)
    : scope_(std::move(scope)),
      connection_("idem_bench watch"),
      target_(swept(connection_, scope_) + rows),
      thread_([this] { watch(); }) {}

SweeperWatch::~SweeperWatch() {
    stopping_ = true;
    thread_.join();
}

bool SweeperWatch::drained() const {
    if (!finished_) return false;
    if (error_) std::rethrow_exception(error_);
    return true;
}

void SweeperWatch::watch() {
    Clock::time_point start = Clock::now();
    try {
        while (!stopping_ && swept(connection_, scope_) < target_) sample(connection_);
    } catch (...) {
        error_ = std::current_exception();
    }
    drain_seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
    finished_ = true;
}

void SweeperWatch::sample(Connection& connection) {
    longest_ = std::max(longest_.load(), connection.number(kAgeOfTransaction));
    std::this_thread::sleep_for(std::chrono::milliseconds(kSampleMillis));
}

}  // namespace idem::bench
