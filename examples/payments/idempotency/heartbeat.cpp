#include "heartbeat.hpp"

#include <pqxx/pqxx>

#include "failure.hpp"

namespace idempotency {

Heartbeat::Heartbeat(const ConnectionPool& pool, ClaimId claim, std::chrono::milliseconds lease)
    : pool_(pool), claim_(std::move(claim)), lease_(lease), thread_([this] { run(); }) {}

Heartbeat::~Heartbeat() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
    }
    stop_.notify_one();
    thread_.join();
}

// A beat at 7/10 of the lease leaves time for a second try, and a third, before it is over. The
// connection is made for the first beat: most claims end before and never need one.
void Heartbeat::run() {
    Connection connection;
    auto next = lease_ * 7 / 10;
    while (!lost_ && pause(next)) next = beat(connection) ? lease_ * 7 / 10 : lease_ / 10;
}

// False when it is time to end.
bool Heartbeat::pause(std::chrono::milliseconds duration) {
    std::unique_lock<std::mutex> lock(mutex_);
    return !stop_.wait_for(lock, duration, [this] { return stopping_; });
}

bool Heartbeat::beat(Connection& connection) noexcept try {
    if (!connection) connection = pool_.connect();
    pqxx::work tx(*connection);
    extend(tx, claim_);
    tx.commit();
    return true;
} catch (const std::exception& failure) {
    if (is_lost_claim(failure)) lost_ = true;
    connection.reset();
    return false;
}

}  // namespace idempotency
