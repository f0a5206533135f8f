// Shared by the client tests: connections, the protocol as a client calls it, gates that force a
// race, and a look at the server's locks. libpq's environment variables name the server.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <pqxx/pqxx>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace idem::client {

// ---- queries ----

// One value of one row, in a separate transaction.
template <typename T, typename... Args>
T value(pqxx::connection& connection, const std::string& sql, Args&&... args) {
    pqxx::nontransaction tx(connection);
    return tx.exec_params(sql, std::forward<Args>(args)...).at(0)[0].template as<T>();
}

template <typename... Args>
void run(pqxx::connection& connection, const std::string& sql, Args&&... args) {
    pqxx::nontransaction tx(connection);
    tx.exec_params(sql, std::forward<Args>(args)...);
}

// Returns when a condition holds. A condition that never holds fails the test instead of hanging
// it.
inline void wait_until(const std::string& what, const std::function<bool()>& holds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(180);
    while (!holds()) {
        if (std::chrono::steady_clock::now() > deadline) {
            throw std::runtime_error("waited in vain until " + what);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

// The SQLSTATE that a call fails with; empty if it succeeds.
inline std::string sqlstate_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const pqxx::sql_error& error) {
        return std::string(error.sqlstate());
    }
    return "";
}

// ---- the protocol; every test works in one scope, which the fixture empties ----

struct Claim {
    std::string outcome;
    std::optional<std::int64_t> token;
    std::optional<int> attempt;
    std::optional<int> status_code;
    std::optional<std::string> body;  // in bytea's hexadecimal form
    std::optional<std::string> recovery_point;
};

// Intervals in the server's syntax; nullptr means the server's default.
struct Terms {
    const char* wait = nullptr;
    const char* lease = nullptr;
    bool hold = false;
};

// A wait that no test sees the end of, on a machine that stands still for a while either.
constexpr Terms kPatient = {"10 minutes"};

template <typename T, typename Field>
std::optional<T> known(const Field& field) {
    if (field.is_null()) return std::nullopt;
    return field.template as<T>();
}

inline Claim begin(pqxx::transaction_base& tx, const std::string& key, const Terms& terms = {}) {
    const pqxx::result rows = tx.exec_params(
        "SELECT outcome, token, attempt, status_code, body, recovery_point"
        "  FROM idem_begin($1, scope => 'client', wait => $2::interval, lease => $3::interval,"
        "                  hold => $4::boolean)",
        key, terms.wait, terms.lease, terms.hold);
    const auto row = rows.at(0);
    return {row[0].as<std::string>(), known<std::int64_t>(row[1]), known<int>(row[2]),
            known<int>(row[3]),       known<std::string>(row[4]),  known<std::string>(row[5])};
}

// Without a token the claim has to be one of the same transaction.
inline bool complete(pqxx::transaction_base& tx, const std::string& key, const std::string& body,
                     std::optional<std::int64_t> token = std::nullopt) {
    const std::string text = token ? std::to_string(*token) : "";
    const pqxx::result rows = tx.exec_params(
        "SELECT idem_complete($1, 201, $2::text, scope => 'client', token => $3::bigint)", key,
        body, token ? text.c_str() : nullptr);
    return rows.at(0)[0].as<bool>();
}

// The same, each committed on its own: a leased claim.
inline Claim begin(pqxx::connection& connection, const std::string& key, const Terms& terms = {}) {
    pqxx::nontransaction tx(connection);
    return begin(tx, key, terms);
}

inline bool complete(pqxx::connection& connection, const std::string& key, const std::string& body,
                     std::int64_t token) {
    pqxx::nontransaction tx(connection);
    return complete(tx, key, body, token);
}

// The business work of these tests: a row for each execution, in a table without a unique key, so
// that a second one shows.
inline void take_effect(pqxx::transaction_base& tx, const std::string& key) {
    tx.exec_params("INSERT INTO client_test.effect VALUES ($1)", key);
}

// Some bytes as bytea prints them, and as its input reads them.
inline std::string hex(const std::string& bytes) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text = "\\x";
    for (const unsigned char byte : bytes) {
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

// ---- gates ----

// A closed gate is a lock of the ordinary advisory class. Sessions that want to pass wait for it on
// the server, so all are released at once, when they are known to be there. Declare a gate after
// the futures of the sessions that pass it: if the test fails, these must be released first.
class Gate {
  public:
    explicit Gate(int id) : id_(id) { run(keeper_, "SELECT pg_advisory_lock($1)", id_); }

    void await(int callers) {
        wait_until("all are at the gate", [&] {
            return callers == value<int>(keeper_,
                                         "SELECT count(*) FROM pg_locks"
                                         " WHERE locktype = 'advisory' AND objsubid = 1"
                                         "   AND classid = 0 AND objid = $1 AND NOT granted",
                                         id_);
        });
    }

    void open() { run(keeper_, "SELECT pg_advisory_unlock($1)", id_); }

  private:
    const int id_;
    pqxx::connection keeper_;
};

inline void pass_gate(pqxx::transaction_base& tx, int id) {
    tx.exec_params("SELECT pg_advisory_xact_lock_shared($1)", id);
}

// Calls work(0) to work(count - 1), each in a separate thread.
template <typename Work>
auto start_all(int count, Work work) {
    std::vector<std::future<decltype(work(0))>> all;
    for (int i = 0; i < count; ++i) all.push_back(std::async(std::launch::async, work, i));
    return all;
}

template <typename T>
std::vector<T> collect(std::vector<std::future<T>>& all) {
    std::vector<T> results;
    for (auto& one : all) results.push_back(one.get());
    return results;
}

inline int count_outcomes(const std::vector<Claim>& claims, const std::string& outcome) {
    int count = 0;
    for (const Claim& claim : claims) count += claim.outcome == outcome;
    return count;
}

// ---- the fixture ----

class ClientTest : public ::testing::Test {
  protected:
    // The lock lets one test at a time into the database, also if CTest runs several programs:
    // some look at the locks of all.
    void SetUp() override {
        pqxx::nontransaction tx(admin_);
        tx.exec("SET client_min_messages TO warning");
        tx.exec("SELECT pg_advisory_lock(0)");
        tx.exec("CREATE EXTENSION IF NOT EXISTS idempotency");
        tx.exec("DELETE FROM idempotency.record WHERE scope = 'client'");
        tx.exec("DROP SCHEMA IF EXISTS client_test CASCADE");
        tx.exec("CREATE SCHEMA client_test");
        tx.exec("CREATE TABLE client_test.effect (key text NOT NULL)");
    }

    void TearDown() override {
        pqxx::nontransaction tx(admin_);
        tx.exec("DELETE FROM idempotency.record WHERE scope = 'client'");
        tx.exec("DROP SCHEMA client_test CASCADE");
    }

    int effects() { return value<int>(admin_, "SELECT count(*) FROM client_test.effect"); }

    // Locks of claims and of liveness, held or waited for, of all sessions.
    int our_locks(bool granted) {
        return value<int>(admin_,
                          "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
                          "   AND 18756 IN (objsubid, classid) AND granted = $1::boolean",
                          granted);
    }

    void await_waiters(int count) {
        wait_until("all wait for the key", [&] { return our_locks(false) == count; });
    }

    // A closed connection's backend may still have to notice it.
    void await_end_of(int backend) {
        wait_until("the backend has gone", [&] {
            return value<bool>(
                admin_, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", backend);
        });
    }

    // The whole record as text: equal before and after if the record is unchanged.
    std::string record(const std::string& key) {
        return value<std::string>(
            admin_, "SELECT r::text FROM idempotency.record r WHERE scope = 'client' AND key = $1",
            key);
    }

    pqxx::connection admin_;
};

}  // namespace idem::client
