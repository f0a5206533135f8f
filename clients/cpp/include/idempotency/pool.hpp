// A bounded set of connections, each lent for a limited time.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "contract.hpp"
#include "driver.hpp"
#include "watchdog.hpp"
#include "wire.hpp"

namespace idempotency {

// No connection became free in time.
class NoConnection : public std::runtime_error {
  public:
    NoConnection() : std::runtime_error("no connection is free") {}
};

// Detects a dead connection: data sent and not acknowledged, or silence. The caller's own
// parameters come after these and win.
inline std::string with_keepalives(const std::string& conninfo,
                                   std::chrono::milliseconds connect_timeout) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(connect_timeout).count();
    const std::vector<std::pair<std::string, std::string>> defaults = {
        {"connect_timeout", std::to_string(seconds)},
        {"keepalives_idle", "10"},
        {"keepalives_interval", "5"},
        {"keepalives_count", "3"},
        {"tcp_user_timeout", "10000"},
    };
    const bool is_uri = conninfo.find("://") != std::string::npos;
    std::string result = is_uri ? conninfo : "";
    for (const auto& [name, value] : defaults) {
        if (!is_uri) {
            result += name + "=" + value + " ";
        } else if (conninfo.find(name + "=") == std::string::npos) {
            result += (result.find('?') == std::string::npos ? "?" : "&") + name + "=" + value;
        }
    }
    return is_uri ? result : result + conninfo;
}

struct PoolOptions {
    std::size_t size = 16;
    std::chrono::milliseconds patience{5000};  // to wait for a connection of the pool
    std::chrono::milliseconds timeout{
        contract::kDefaultDatabaseTimeoutMs};       // of a statement of this library, and of COMMIT
    std::chrono::milliseconds longest_loan{90000};  // from lending to return
};

template <typename Driver>
class Pool {
  public:
    using Connection = typename Driver::Connection;
    // Runs first on every new connection: takes a role, sets timeouts.
    using Setup = std::function<void(Connection&)>;

    // Does not connect yet: a service may start before its database.
    Pool(const std::string& conninfo, PoolOptions options, Setup setup = {})
        : conninfo_(with_keepalives(conninfo, options.timeout)),
          options_(options),
          setup_(std::move(setup)) {
        idle_.reserve(options_.size);  // so that a return cannot fail
    }

    // A connection on loan. If it is still good, it returns to the pool when the loan ends.
    // Transactions on it must end first, which is the natural order of declaration.
    class Loan {
      public:
        explicit Loan(Pool& pool) : pool_(pool) {}
        ~Loan() {
            guard_.reset();
            if (late_) connection_.reset();
            pool_.take_back(std::move(connection_), cut_);
        }
        Loan(const Loan&) = delete;
        Loan& operator=(const Loan&) = delete;
        Connection& operator*() const { return *connection_; }

        // Until this guard ends, at most that long, the database may be silent.
        Watchdog::Guard limit(std::chrono::milliseconds duration) {
            return pool_.cut_at(Clock::now() + duration, *connection_, cut_);
        }

        // The borrower's own limit. Then its statement is cancelled, and the server ends its
        // transaction, whatever the borrower does.
        Watchdog::Guard give_up_after(std::chrono::milliseconds duration) {
            return pool_.give_up_at(moment_after(duration), *connection_, late_);
        }
        bool late() const { return late_; }

      private:
        friend class Pool;
        Pool& pool_;
        std::unique_ptr<Connection> connection_;
        std::atomic<bool> cut_{false}, late_{false};
        std::optional<Watchdog::Guard> guard_;
    };

    // These throw the driver's exception if there is no database; lend also throws NoConnection. A
    // borrower that waits for something else gets the connection for longer.
    std::unique_ptr<Loan> lend(std::chrono::milliseconds longer = {}) {
        auto idle = wait_for_place();
        auto loan = std::make_unique<Loan>(*this);  // from here on its end frees the place
        loan->connection_ = idle && is_fit(*idle, loan->cut_) ? std::move(idle) : connect();
        loan->guard_.emplace(
            cut_at(Clock::now() + options_.longest_loan + longer, *loan->connection_, loan->cut_));
        return loan;
    }

    // A connection outside the pool, for callers that need one.
    std::unique_ptr<Connection> connect() {
        auto connection = Driver::connect(conninfo_);
        std::atomic<bool> cut{false};
        const auto guard = cut_at(Clock::now() + options_.timeout, *connection, cut);
        if (setup_) setup_(*connection);
        return connection;
    }

    // Shuts a silent peer's connection down, as if it had hung up. Uses a duplicate of the
    // descriptor: libpq may have closed its own by then, and another connection may have its
    // number.
    Watchdog::Guard cut_at(Clock::time_point moment, Connection& connection,
                           std::atomic<bool>& cut) {
        const auto ours = std::make_shared<Descriptor>(PQsocket(Driver::raw(connection)));
        return dog_.at(moment, [ours, &cut] {
            cut = true;
            shutdown(ours->number, SHUT_RDWR);
        });
    }

    const PoolOptions& options() const noexcept { return options_; }

  private:
    // The connection is of no use after that. A server that works on a statement does not notice
    // that its client has hung up: so the statement is cancelled first.
    Watchdog::Guard give_up_at(Clock::time_point moment, Connection& connection,
                               std::atomic<bool>& late) {
        PGconn* raw = Driver::raw(connection);
        const auto ours = std::make_shared<Descriptor>(PQsocket(raw));
        const std::shared_ptr<PGcancel> cancel(PQgetCancel(raw), PQfreeCancel);
        return dog_.at(moment, [ours, cancel, &late] {
            late = true;
            hang_up(ours, cancel);
        });
    }

    struct Descriptor {
        explicit Descriptor(int other) : number(fcntl(other, F_DUPFD_CLOEXEC, 0)) {}
        ~Descriptor() {
            if (number >= 0) close(number);
        }
        Descriptor(const Descriptor&) = delete;
        Descriptor& operator=(const Descriptor&) = delete;
        const int number;
    };

    // In a thread of its own, since a cancellation waits for the server.
    static void hang_up(const std::shared_ptr<Descriptor>& ours,
                        const std::shared_ptr<PGcancel>& cancel) noexcept try {
        thread_without_signals([ours, cancel] {
            char error[256];
            PQcancel(cancel.get(), error, sizeof(error));
            shutdown(ours->number, SHUT_RDWR);
        }).detach();
    } catch (const std::exception&) {  // no thread is left
        shutdown(ours->number, SHUT_RDWR);
    }

    // The last user may not have waited for the answer to its ROLLBACK. After that, the server
    // sends nothing to an idle connection except its farewell. Noticing that here saves the next
    // request an error after each restart of the database.
    bool is_fit(Connection& connection, std::atomic<bool>& cut) {
        PGconn* raw = Driver::raw(connection);
        if (PQtransactionStatus(raw) != PQTRANS_IDLE) {
            const auto limit = cut_at(Clock::now() + options_.timeout, connection, cut);
            if (!detail::drain(raw) || PQtransactionStatus(raw) != PQTRANS_IDLE) return false;
        }
        pollfd descriptor{PQsocket(raw), POLLIN, 0};
        return poll(&descriptor, 1, 0) == 0;
    }

    std::unique_ptr<Connection> wait_for_place() {
        std::unique_lock<std::mutex> lock(mutex_);
        const auto is_free = [this] { return lent_ < options_.size; };
        if (!returned_.wait_for(lock, options_.patience, is_free)) throw NoConnection();
        ++lent_;
        if (idle_.empty()) return nullptr;
        auto connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
    }

    // After one peer was silent for too long, the others are not waited for.
    void take_back(std::unique_ptr<Connection> connection, bool cut) noexcept {
        std::vector<std::unique_ptr<Connection>> given_up;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            --lent_;
            if (cut) {
                given_up.assign(std::make_move_iterator(idle_.begin()),
                                std::make_move_iterator(idle_.end()));
                idle_.clear();
            } else if (connection && detail::is_reusable(Driver::raw(*connection))) {
                idle_.push_back(std::move(connection));
            }
        }
        returned_.notify_one();
    }

    const std::string conninfo_;
    const PoolOptions options_;
    const Setup setup_;
    Watchdog dog_;
    std::mutex mutex_;
    std::condition_variable returned_;
    std::size_t lent_ = 0;
    std::vector<std::unique_ptr<Connection>> idle_;
};

// The meaning of an exception: the driver's, or this library's own.
template <typename Driver>
Failure failure_of(const std::exception& error) {
    if (dynamic_cast<const NoConnection*>(&error) != nullptr) return {Failure::Connection, ""};
    if (dynamic_cast<const ClaimLost*>(&error) != nullptr) return {Failure::Statement, "ID409"};
    const auto failure = Driver::failure(error);
    return failure.kind == Failure::Other ? detail::failure(error) : failure;
}

}  // namespace idempotency
