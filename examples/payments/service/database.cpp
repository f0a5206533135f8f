#include "database.hpp"

#include <cstdlib>

namespace payments {

// The application works as a role that has the protocol functions and its own tables, and nothing
// else. Longer than the longest `wait` of a route, or statements that wait would be cut off.
idempotency::ConnectionPool::Setup connection_setup(const std::string& application_name) {
    // For libpq, unless the environment says otherwise: a database that is away is soon noticed.
    setenv("PGCONNECT_TIMEOUT", "2", /* overwrite */ 0);
    return [application_name](pqxx::connection& connection) {
        pqxx::nontransaction tx(connection);
        tx.exec("SET client_encoding TO 'UTF8'");
        tx.exec("SET TIME ZONE 'UTC'");
        tx.exec("SET statement_timeout TO '15s'");
        tx.exec("SET application_name TO " + tx.quote(application_name));
        tx.exec("SET ROLE payments_app");
    };
}

}  // namespace payments
