// The driver for libpqxx, from 6.4 to 8.
#pragma once

#include <memory>
#include <pqxx/pqxx>
#include <string>

#include "driver.hpp"
#include "protocol.hpp"

namespace idempotency {

// Transaction: pqxx::work, or one with another isolation level.
template <typename PqxxTransaction>
struct BasicPqxx {
    using Connection = pqxx::connection;
    using Transaction = PqxxTransaction;

    // libpqxx 6 would replace a lost connection silently, without the pool's Setup: the new one
    // would have the rights of the login role. libpqxx 7 never does that.
    static std::unique_ptr<Connection> connect(const std::string& conninfo) {
        auto connection = std::make_unique<Connection>(conninfo);
#if PQXX_VERSION_MAJOR < 7
        connection->inhibit_reactivation(true);
#endif
        return connection;
    }

    static int socket(Connection& connection) {
        return connection.sock();
    }
    static bool is_open(Connection& connection) {
        return connection.is_open();
    }

    static Row run(pqxx::transaction_base& tx, const char* statement, const Values& values) {
#if PQXX_VERSION_MAJOR < 7
        const auto result = tx.exec_params(statement, pqxx::prepare::make_dynamic_params(values));
#else
        pqxx::params parameters;
        for (const auto& value : values) parameters.append(value);
        const auto result = tx.exec_params(statement, parameters);
#endif
        Row row;
        if (result.empty()) return row;
        for (const auto& field : result[0]) {
            row.push_back(field.is_null() ? std::nullopt : Value(field.c_str()));
        }
        return row;
    }

    static Row run_alone(Connection& connection, const char* statement, const Values& values) {
        pqxx::nontransaction tx(connection);
        Row row = run(tx, statement, values);
        tx.commit();
        return row;
    }

    // An error without a number comes from libpq: the server did not answer, the connection is
    // lost. In libpqxx 6 rollbacks have no number either.
    static Failure failure(const std::exception& error) {
        if (is_a<pqxx::broken_connection>(error) || is_a<pqxx::in_doubt_error>(error) ||
            is_a<pqxx::statement_completion_unknown>(error)) {
            return {Failure::Connection, ""};
        }
        if (is_a<pqxx::serialization_failure>(error)) return {Failure::Statement, "40001"};
        if (is_a<pqxx::deadlock_detected>(error)) return {Failure::Statement, "40P01"};
        if (is_a<pqxx::transaction_rollback>(error)) return {Failure::Statement, "40000"};
        const auto* sql = dynamic_cast<const pqxx::sql_error*>(&error);
        if (sql == nullptr) return {};
        const std::string state(sql->sqlstate());
        return {state.empty() ? Failure::Connection : Failure::Statement, state};
    }

  private:
    template <typename Type>
    static bool is_a(const std::exception& error) {
        return dynamic_cast<const Type*>(&error) != nullptr;
    }
};

using Pqxx = BasicPqxx<pqxx::work>;

// Call it in the transaction of the message's effects. True for the first delivery.
inline bool once(pqxx::transaction_base& tx, const std::string& key, const std::string& scope,
                 const std::string& principal = "") {
    return protocol::once([&](const char* sql, const Values& v) { return Pqxx::run(tx, sql, v); },
                          key, scope, principal);
}

}  // namespace idempotency
