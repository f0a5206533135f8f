#include "connection_pool.hpp"

#include <poll.h>

#include <chrono>

namespace idempotency {
namespace {

// Longer than any request should last: whoever waits this long is better told to come again.
constexpr std::chrono::seconds kPatience{10};

// An idle connection has nothing to hear. What is there to read is the server's good-bye, and
// noticing it here spares the next request an error after each restart of the database.
bool is_quiet(const pqxx::connection& connection) {
    pollfd descriptor{connection.sock(), POLLIN, 0};
    return poll(&descriptor, 1, 0) == 0;
}

// libpqxx 6 would replace a lost connection silently, and with it what Setup did: the new one would
// work with the rights of the login role. libpqxx 7 never does that.
void never_reconnect(pqxx::connection& connection) {
#if PQXX_VERSION_MAJOR < 7
    connection.inhibit_reactivation(true);
#else
    (void)connection;
#endif
}

}  // namespace

ConnectionPool::ConnectionPool(std::string conninfo, std::size_t size, Setup setup)
    : conninfo_(std::move(conninfo)), size_(size), setup_(std::move(setup)) {
    idle_.reserve(size_);  // so that taking back can't fail
}

std::unique_ptr<ConnectionPool::Loan> ConnectionPool::lend() {
    Connection idle = wait_for_place();
    auto loan = std::make_unique<Loan>(*this);  // from here on its end gives the place back
    loan->connection_ = idle && is_quiet(*idle) ? std::move(idle) : connect();
    return loan;
}

Connection ConnectionPool::connect() const {
    auto connection = std::make_unique<pqxx::connection>(conninfo_);
    never_reconnect(*connection);
    setup_(*connection);
    return connection;
}

Connection ConnectionPool::wait_for_place() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!returned_.wait_for(lock, kPatience, [this] { return lent_ < size_; })) {
        throw pqxx::broken_connection("no connection is free");
    }
    ++lent_;
    if (idle_.empty()) return nullptr;
    Connection connection = std::move(idle_.back());
    idle_.pop_back();
    return connection;
}

void ConnectionPool::take_back(Connection connection) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    --lent_;
    if (connection && connection->is_open()) idle_.push_back(std::move(connection));
    returned_.notify_one();
}

}  // namespace idempotency
