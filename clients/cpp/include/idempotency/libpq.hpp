// The driver for plain libpq.
#pragma once

#include <libpq-fe.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "driver.hpp"
#include "protocol.hpp"
#include "wire.hpp"

namespace idempotency {

class LibpqConnection {
  public:
    explicit LibpqConnection(const std::string& conninfo)
        : connection_(PQconnectdb(conninfo.c_str()), PQfinish) {
        if (PQstatus(get()) != CONNECTION_OK) throw SqlError(PQerrorMessage(get()), "");
    }
    PGconn* get() const noexcept { return connection_.get(); }

    // Throws SqlError. Values in text format.
    Row run(const char* statement, const Values& values = {}) {
        return detail::row_of(detail::execute(get(), {statement, values}).get());
    }

  private:
    std::unique_ptr<PGconn, void (*)(PGconn*)> connection_;
};

class LibpqTransaction {
  public:
    explicit LibpqTransaction(LibpqConnection& connection) : connection_(connection) {
        guard_.begin(connection_.get(), "BEGIN");
    }
    LibpqTransaction(LibpqConnection& connection, const Statement& first, Row& answer)
        : connection_(connection) {
        answer = guard_.begin(connection_.get(), "BEGIN", first);
    }

    // Throws TransactionEnded where the statement would run outside of the transaction.
    Row run(const char* statement, const Values& values = {}) {
        guard_.check();
        return connection_.run(statement, values);
    }

    // Throws if a statement has failed: PostgreSQL would make it a ROLLBACK, without an error. A
    // handler that calls it makes its transaction fail.
    void commit() { guard_.commit(); }

  private:
    friend struct Libpq;
    LibpqConnection& connection_;
    detail::Guard guard_;
};

struct Libpq {
    using Connection = LibpqConnection;
    using Transaction = LibpqTransaction;

    static std::unique_ptr<Connection> connect(const std::string& conninfo) {
        return std::make_unique<Connection>(conninfo);
    }
    static PGconn* raw(Connection& connection) { return connection.get(); }
    static detail::Guard& guard(Transaction& tx) { return tx.guard_; }
    static Row run(Transaction& tx, const char* statement, const Values& values) {
        return tx.run(statement, values);
    }
    static Row run_alone(Connection& connection, const char* statement, const Values& values) {
        return connection.run(statement, values);
    }
    static Failure failure(const std::exception& error) { return detail::failure(error); }
};

// Call it in the transaction of the message's effects. True for the first delivery.
inline bool once(LibpqTransaction& tx, const std::string& key, const std::string& scope,
                 const std::string& principal = "") {
    return protocol::once([&](const char* sql, const Values& v) { return tx.run(sql, v); }, key,
                          scope, principal);
}

}  // namespace idempotency
