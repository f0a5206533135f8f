// The driver for plain libpq.
#pragma once

#include <libpq-fe.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "driver.hpp"
#include "protocol.hpp"

namespace idempotency {

// An empty sqlstate: no answer of the server, the connection is lost.
class SqlError : public std::runtime_error {
  public:
    SqlError(const std::string& message, std::string sqlstate)
        : std::runtime_error(message), sqlstate_(std::move(sqlstate)) {}
    const std::string& sqlstate() const noexcept { return sqlstate_; }

  private:
    std::string sqlstate_;
};

class LibpqConnection {
  public:
    explicit LibpqConnection(const std::string& conninfo)
        : connection_(PQconnectdb(conninfo.c_str()), PQfinish) {
        if (PQstatus(get()) != CONNECTION_OK) throw SqlError(PQerrorMessage(get()), "");
    }
    PGconn* get() const noexcept { return connection_.get(); }

    // Throws SqlError. Values in text format.
    Row run(const char* statement, const Values& values = {}) {
        std::vector<const char*> texts;
        for (const auto& value : values) texts.push_back(value ? value->c_str() : nullptr);
        const std::unique_ptr<PGresult, void (*)(PGresult*)> result(
            PQexecParams(get(), statement, static_cast<int>(texts.size()), nullptr, texts.data(),
                         nullptr, nullptr, 0),
            PQclear);
        const auto status = PQresultStatus(result.get());
        if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
            const char* state = PQresultErrorField(result.get(), PG_DIAG_SQLSTATE);
            throw SqlError(PQerrorMessage(get()), state ? state : "");
        }
        Row row;
        for (int i = 0; PQntuples(result.get()) > 0 && i < PQnfields(result.get()); ++i) {
            const bool null = PQgetisnull(result.get(), 0, i) != 0;
            row.push_back(null ? std::nullopt : Value(PQgetvalue(result.get(), 0, i)));
        }
        return row;
    }

  private:
    std::unique_ptr<PGconn, void (*)(PGconn*)> connection_;
};

class LibpqTransaction {
  public:
    explicit LibpqTransaction(LibpqConnection& connection) : connection_(connection) {
        connection_.run("BEGIN");
    }
    ~LibpqTransaction() {
        if (ended_) return;
        try {
            connection_.run("ROLLBACK");
        } catch (const SqlError&) {  // the connection is lost, and the transaction with it
        }
    }
    LibpqTransaction(const LibpqTransaction&) = delete;
    LibpqTransaction& operator=(const LibpqTransaction&) = delete;

    Row run(const char* statement, const Values& values = {}) {
        return connection_.run(statement, values);
    }

    // COMMIT rolls back a transaction in which a statement failed, without an error.
    void commit() {
        if (PQtransactionStatus(connection_.get()) == PQTRANS_INERROR) {
            throw SqlError("the transaction has failed", "25P02");
        }
        ended_ = true;
        connection_.run("COMMIT");
    }

  private:
    LibpqConnection& connection_;
    bool ended_ = false;
};

struct Libpq {
    using Connection = LibpqConnection;
    using Transaction = LibpqTransaction;

    static std::unique_ptr<Connection> connect(const std::string& conninfo) {
        return std::make_unique<Connection>(conninfo);
    }
    static int socket(Connection& connection) { return PQsocket(connection.get()); }
    static bool is_open(Connection& connection) {
        return PQstatus(connection.get()) == CONNECTION_OK &&
               PQtransactionStatus(connection.get()) == PQTRANS_IDLE;
    }
    static Row run(Transaction& tx, const char* statement, const Values& values) {
        return tx.run(statement, values);
    }
    static Row run_alone(Connection& connection, const char* statement, const Values& values) {
        return connection.run(statement, values);
    }
    static Failure failure(const std::exception& error) {
        const auto* sql = dynamic_cast<const SqlError*>(&error);
        if (sql == nullptr) return {};
        const bool gone = sql->sqlstate().empty();
        return {gone ? Failure::Connection : Failure::Statement, sql->sqlstate()};
    }
};

// Call it in the transaction of the message's effects. True for the first delivery.
inline bool once(LibpqTransaction& tx, const std::string& key, const std::string& scope,
                 const std::string& principal = "") {
    return protocol::once([&](const char* sql, const Values& v) { return tx.run(sql, v); }, key,
                          scope, principal);
}

}  // namespace idempotency
