#include "failure.hpp"

#include <iostream>
#include <pqxx/except>
#include <string>

#include "problem.hpp"

namespace idempotency {
namespace {

template <typename Type>
bool is_a(const std::exception& failure) {
    return dynamic_cast<const Type*>(&failure) != nullptr;
}

bool has_state(const std::exception& failure, std::initializer_list<const char*> beginnings) {
    const auto* error = dynamic_cast<const pqxx::sql_error*>(&failure);
    if (error == nullptr) return false;
    for (const std::string beginning : beginnings) {
        if (error->sqlstate().compare(0, beginning.size(), beginning) == 0) return true;
    }
    return false;
}

// Deadlocks, serialization failures, timeouts: rolled back, and likely to pass next time.
bool is_passing(const std::exception& failure) {
    return is_a<pqxx::transaction_rollback>(failure) ||
           has_state(failure, {"40", "55P03", "57014"});
}

// Of the database's errors only the number: the message may quote a key or a body.
void report(const std::exception& failure) {
    const auto* error = dynamic_cast<const pqxx::sql_error*>(&failure);
    std::cerr << "error: " +
                     (error ? "SQLSTATE " + std::string(error->sqlstate()) : failure.what()) + "\n";
}

}  // namespace

// An error without a number comes from libpq: the server said nothing, because it is gone. Class 08
// is the connection, 53 no room for it, 57P a server on its way up or down, 25006 a standby.
bool is_connection_failure(const std::exception& failure) {
    if (is_a<pqxx::broken_connection>(failure) || is_a<pqxx::in_doubt_error>(failure)) return true;
    const auto* error = dynamic_cast<const pqxx::sql_error*>(&failure);
    return error != nullptr &&
           (error->sqlstate().empty() || has_state(failure, {"08", "53", "57P", "25006"}));
}

bool is_lost_claim(const std::exception& failure) {
    return has_state(failure, {"ID409", "ID404"});
}

httplib::Response answer_to(const std::exception_ptr& failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const Refusal& refusal) {
        return refusal.answer();
    } catch (const std::exception& error) {
        if (is_lost_claim(error)) return claim_lost();
        if (is_connection_failure(error) || is_passing(error)) return unavailable();
        report(error);
    } catch (...) {
        std::cerr << "error: not a standard exception\n";
    }
    return internal_error();
}

}  // namespace idempotency
