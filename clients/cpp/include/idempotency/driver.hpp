// The seam between this library and the one that talks to the database, which stands on libpq. A
// driver is a struct with
//
//     using Connection;
//     using Transaction;  // Transaction(Connection&): BEGIN. Transaction(Connection&, const
//                         // Statement&, Row&): BEGIN and a statement in one message. commit().
//                         // Its destructor rolls back
//     static std::unique_ptr<Connection> connect(const std::string& conninfo);
//     static PGconn* raw(Connection&);
//     static detail::Guard& guard(Transaction&);  // wire.hpp
//     static Row run(Transaction&, const char* statement, const Values&);  // the first row
//     static Row run_alone(Connection&, const char* statement, const Values&);  // autocommit
//     static Failure failure(const std::exception&);
//
// There are two: Pqxx (pqxx.hpp) and Libpq (libpq.hpp).
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace idempotency {

using Value = std::optional<std::string>;
using Values = std::vector<Value>;
using Row = std::vector<Value>;

struct Statement {
    const char* text;
    Values values;
};

// The meaning of an exception of the database.
struct Failure {
    enum Kind { Other, Statement, Connection } kind = Other;
    std::string sqlstate;

    bool in(std::initializer_list<const char*> beginnings) const {
        for (const std::string beginning : beginnings) {
            if (kind == Statement && sqlstate.compare(0, beginning.size(), beginning) == 0) {
                return true;
            }
        }
        return false;
    }

    // The connection is broken or cannot be made; its last statement may or may not have taken
    // effect. Class 08 is the connection, 53 no room for it, 57P a server that starts or stops,
    // 25006 a standby.
    bool is_connection() const { return kind == Connection || in({"08", "53", "57P", "25006"}); }

    // Deadlocks and serialization failures: rolled back, and likely to succeed next time.
    bool is_serialization() const { return in({"40001", "40P01"}); }

    // Timeouts of locks and statements, and all other rollbacks.
    bool is_passing() const { return in({"40", "55P03", "57014"}); }

    // No call like this can succeed: a right, a function, the database or a value is wrong.
    bool is_mistake() const {
        return sqlstate.empty() ? !is_connection() : in({"0A", "22", "28", "3D", "3F", "42"});
    }

    // The claim has ended, or another holder has it.
    bool is_lost_claim() const { return in({"ID409", "ID404"}); }

    // The text is not JSON, or JSON that jsonb cannot hold: an escaped NUL, or a number that is too
    // large. No other error of class 22 is about the request.
    bool is_bad_json() const { return in({"22P02", "22021", "22030", "22032"}); }
    bool is_refused_by_jsonb() const { return in({"22P05", "22003"}); }
    bool is_too_large() const { return in({"54000", "54001"}); }
};

// Another holder has the claim of this work, or may have it.
class ClaimLost : public std::exception {
  public:
    const char* what() const noexcept override { return "the claim is lost"; }
};

}  // namespace idempotency
