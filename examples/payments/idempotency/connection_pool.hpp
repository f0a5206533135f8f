// A bounded set of connections: as many as there are threads that use them.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <pqxx/pqxx>
#include <string>
#include <vector>

namespace idempotency {

using Connection = std::unique_ptr<pqxx::connection>;

class ConnectionPool {
  public:
    // A connection on loan; it goes back, if it is still good, when the loan ends. Transactions on
    // it must end first, which is the natural order of declaration.
    class Loan {
      public:
        explicit Loan(ConnectionPool& pool) : pool_(pool) {}
        ~Loan() { pool_.take_back(std::move(connection_)); }
        Loan(const Loan&) = delete;
        Loan& operator=(const Loan&) = delete;
        pqxx::connection& operator*() const { return *connection_; }

      private:
        friend class ConnectionPool;
        ConnectionPool& pool_;
        Connection connection_;
    };

    // What every new connection is to do first: take a role, set timeouts.
    using Setup = std::function<void(pqxx::connection&)>;

    // Does not connect yet: a service may start before its database.
    ConnectionPool(std::string conninfo, std::size_t size, Setup setup);

    // Throw pqxx::broken_connection when there is no database or, for lend, no free connection.
    std::unique_ptr<Loan> lend();
    Connection connect() const;  // beside the pool, for who needs one of his own

  private:
    Connection wait_for_place();
    void take_back(Connection connection) noexcept;

    const std::string conninfo_;
    const std::size_t size_;
    const Setup setup_;
    std::mutex mutex_;
    std::condition_variable returned_;
    std::size_t lent_ = 0;
    std::vector<Connection> idle_;
};

}  // namespace idempotency
