#include "database.hpp"

#include <iostream>

namespace payments {

// The application's role has the protocol functions and the application's own tables, and no other
// rights. The timeout is longer than the longest `wait` of a route, or it would cut off waiting
// statements.
Pool::Setup connection_setup(const std::string& application_name) {
    return [application_name](pqxx::connection& connection) {
        pqxx::nontransaction tx(connection);
        tx.exec("SET client_encoding TO 'UTF8'");
        tx.exec("SET TIME ZONE 'UTC'");
        tx.exec("SET statement_timeout TO '15s'");
        tx.exec("SET application_name TO " + tx.quote(application_name));
        tx.exec("SET ROLE payments_app");
    };
}

idempotency::Answer answered(const std::function<idempotency::Answer()>& work) try {
    return work();
} catch (const idempotency::Refusal& refusal) {
    return refusal.answer();
} catch (const std::exception& error) {
    const auto failure = idempotency::failure_of<Driver>(error);
    if (failure.is_connection() || failure.is_passing()) return idempotency::unavailable();
    std::cerr << "error: " +
                     (failure.sqlstate.empty() ? error.what() : "SQLSTATE " + failure.sqlstate) +
                     "\n";
    return idempotency::rolled_back();
}

}  // namespace payments
