// What both drivers do on libpq's connection: several statements in one message, and the guard of a
// transaction that a handler works in.
#pragma once

#include <libpq-events.h>
#include <libpq-fe.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver.hpp"

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

// The handler has ended the transaction that it was lent, or tried to. Nothing of it commits.
class TransactionEnded : public std::logic_error {
  public:
    TransactionEnded() : std::logic_error("the handler has ended its transaction") {}
};

namespace detail {

// Of this library's own statements.
inline Failure failure(const std::exception& error) {
    const auto* sql = dynamic_cast<const SqlError*>(&error);
    if (sql == nullptr) return {};
    return {sql->sqlstate().empty() ? Failure::Connection : Failure::Statement, sql->sqlstate()};
}

using Result = std::unique_ptr<PGresult, void (*)(PGresult*)>;

inline Result next_result(PGconn* connection) {
    return {PQgetResult(connection), PQclear};
}

// Text format, as libpq wants it.
inline std::vector<const char*> texts_of(const Values& values) {
    std::vector<const char*> texts;
    for (const auto& value : values) texts.push_back(value ? value->c_str() : nullptr);
    return texts;
}

[[noreturn]] inline void throw_error(PGconn* connection, const PGresult* result) {
    const char* state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : nullptr;
    const char* message = result ? PQresultErrorMessage(result) : PQerrorMessage(connection);
    throw SqlError(message, state ? state : "");
}

inline bool is_good(const PGresult* result) {
    const auto status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

inline std::vector<Row> rows_of(const PGresult* result) {
    std::vector<Row> rows(static_cast<std::size_t>(PQntuples(result)));
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const int number = static_cast<int>(i);
        for (int column = 0; column < PQnfields(result); ++column) {
            const bool null = PQgetisnull(result, number, column) != 0;
            rows[i].push_back(null ? std::nullopt : Value(PQgetvalue(result, number, column)));
        }
    }
    return rows;
}

// The first row.
inline Row row_of(const PGresult* result) {
    auto rows = rows_of(result);
    return rows.empty() ? Row() : std::move(rows[0]);
}

inline Result execute(PGconn* connection, const Statement& statement) {
    const auto texts = texts_of(statement.values);
    Result result(PQexecParams(connection, statement.text, static_cast<int>(texts.size()), nullptr,
                               texts.data(), nullptr, nullptr, 0),
                  PQclear);
    if (!is_good(result.get())) throw_error(connection, result.get());
    return result;
}

// Throws the error by which the server has ended the session since the last statement. A statement
// that is sent then fails without its number. An empty query keeps the number.
inline void take_farewell(PGconn* connection) {
    pollfd descriptor{PQsocket(connection), POLLIN, 0};
    if (poll(&descriptor, 1, 0) <= 0 || PQsendQuery(connection, "") != 1) return;
    Result farewell(nullptr, PQclear);
    while (auto result = next_result(connection)) {
        const bool failed = PQresultStatus(result.get()) == PGRES_FATAL_ERROR;
        if (failed && !farewell) farewell = std::move(result);
    }
    if (farewell) throw_error(connection, farewell.get());
}

// Takes the answers that are still expected. False if the connection is of no further use.
inline bool drain(PGconn* connection) {
    while (const auto result = next_result(connection)) {
        const auto status = PQresultStatus(result.get());
        const bool copies = status == PGRES_COPY_IN || status == PGRES_COPY_OUT;
        if (copies || PQstatus(connection) != CONNECTION_OK) return false;
    }
    return PQstatus(connection) == CONNECTION_OK;
}

#ifdef LIBPQ_HAS_PIPELINING

// The statements that a connection has prepared. The server parses and plans them once, not for
// each request. A pooler may give each transaction another session, and a handler may run
// DEALLOCATE. Then a prepared statement fails, the transaction is repeated, and the process
// prepares no more.
class Prepared {
  public:
    // Lives as long as the connection. nullptr: libpq has no memory for it.
    static Prepared* of(PGconn* connection) {
        void* kept = PQinstanceData(connection, on_event);
        if (kept != nullptr) return static_cast<Prepared*>(kept);
        if (PQregisterEventProc(connection, on_event, "idempotency", nullptr) != 1) return nullptr;
        auto made = std::make_unique<Prepared>();
        return PQsetInstanceData(connection, on_event, made.get()) == 1 ? made.release() : nullptr;
    }

    // The same name always has the same text, whichever program has prepared it.
    static std::string name_of(const char* text) {
        return "idempotency_" + std::to_string(std::hash<std::string_view>()(text));
    }

    static bool is_allowed() { return !given_up_; }
    bool has(const std::string& name) const { return names_.count(name) != 0; }
    void add(const std::string& name) { names_.insert(name); }

    // Gives up if the error is that a prepared statement does not exist, or exists already.
    static bool gives_up_after(const PGresult* error) {
        const char* state = PQresultErrorField(error, PG_DIAG_SQLSTATE);
        if (state == nullptr) return false;
        if (std::strcmp(state, "26000") != 0 && std::strcmp(state, "42P05") != 0) return false;
        given_up_ = true;
        return true;
    }

  private:
    static int on_event(PGEventId event, void* info, void*) {
        if (event == PGEVT_CONNDESTROY) {
            auto* end = static_cast<PGEventConnDestroy*>(info);
            delete static_cast<Prepared*>(PQinstanceData(end->conn, on_event));
        }
        return 1;
    }

    inline static std::atomic<bool> given_up_{false};
    std::set<std::string> names_;
};

// Returns the name by which it is prepared in the same message, if it is. Then the first result is
// that of preparing.
inline std::string send(PGconn* connection, const Statement& statement, Prepared* prepared) {
    const auto texts = texts_of(statement.values);
    const auto count = static_cast<int>(texts.size());
    const auto check = [&](int sent) {
        if (sent != 1) throw_error(connection, nullptr);
    };
    if (texts.empty() || prepared == nullptr || !Prepared::is_allowed()) {
        check(PQsendQueryParams(connection, statement.text, count, nullptr, texts.data(), nullptr,
                                nullptr, 0));
        return "";
    }
    std::string name = Prepared::name_of(statement.text);
    const bool is_new = !prepared->has(name);
    if (is_new) check(PQsendPrepare(connection, name.c_str(), statement.text, 0, nullptr));
    check(PQsendQueryPrepared(connection, name.c_str(), count, texts.data(), nullptr, nullptr, 0));
    return is_new ? name : "";
}

// Sends two statements in one message and waits once. If the first fails, the server skips the
// other. Throws the error.
inline std::pair<Result, Result> execute_both(PGconn* connection, const Statement& first,
                                              const Statement& second) {
    if (!drain(connection) || PQenterPipelineMode(connection) != 1) {
        throw_error(connection, nullptr);
    }
    Prepared* prepared = Prepared::of(connection);
    const std::string new_names[] = {send(connection, first, prepared),
                                     send(connection, second, prepared)};
    if (PQpipelineSync(connection) != 1) throw_error(connection, nullptr);
    Result failed(nullptr, PQclear);
    const auto answer = [&] {
        auto result = next_result(connection);
        if (!result || PQstatus(connection) != CONNECTION_OK) {
            throw_error(connection, result.get());
        }
        while (next_result(connection)) {
        }
        const bool good = is_good(result.get());
        if (!good && !failed) failed = std::move(result);
        return std::pair(good, std::move(result));
    };
    const auto answer_after = [&](const std::string& new_name) {
        if (!new_name.empty() && answer().first) prepared->add(new_name);
        return answer().second;
    };
    std::pair<Result, Result> results{answer_after(new_names[0]), answer_after(new_names[1])};
    next_result(connection);  // of the Sync
    PQexitPipelineMode(connection);
    if (!failed) return results;
    if (!Prepared::gives_up_after(failed.get())) throw_error(connection, failed.get());
    throw SqlError(PQresultErrorMessage(failed.get()), "40001");  // it is repeated
}

#else

inline std::pair<Result, Result> execute_both(PGconn* connection, const Statement& first,
                                              const Statement& second) {
    auto result = execute(connection, first);
    return {std::move(result), execute(connection, second)};
}

#endif

// Whether the pool may lend the connection again. The answer to a ROLLBACK may be on its way.
inline bool is_reusable(PGconn* connection) {
    const auto status = PQtransactionStatus(connection);
    return PQstatus(connection) == CONNECTION_OK &&
           (status == PQTRANS_IDLE || status == PQTRANS_ACTIVE);
}

// A transaction on the server, from its BEGIN to its end. It knows what libpqxx does not look at:
// whether the server's transaction is still the one that was begun, and the tag of COMMIT's answer.
class Guard {
  public:
    Guard() = default;
    ~Guard() { roll_back(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

    void begin(PGconn* connection, const char* begin) {
        open(connection);
        execute(connection, {begin, {}});
    }

    // BEGIN and the first statement in one message.
    Row begin(PGconn* connection, const char* begin, const Statement& first) {
        open(connection);
        return row_of(execute_both(connection, {begin, {}}, first).second.get());
    }

    // From here on a handler has the transaction: only `end` commits it.
    void lend() noexcept { lent_ = true; }

    // Call it before each statement. Throws TransactionEnded where the statement would run outside
    // of the transaction, and take effect by itself.
    void check() {
        if (refused_) throw TransactionEnded();
        if (connection_ != nullptr) take_farewell(connection_);
        if (connection_ == nullptr || PQtransactionStatus(connection_) != PQTRANS_IDLE) return;
        connection_ = nullptr;
        refused_ = true;
        throw TransactionEnded();
    }

    // The transaction fails on the server: whatever the handler goes on with, nothing commits.
    void refuse() noexcept {
        if (refused_ || connection_ == nullptr) return;
        refused_ = true;
        PQclear(PQexec(connection_, kFailing));
    }

    // The application's own COMMIT, of a transaction that was not lent.
    void commit() {
        if (lent_) {
            refuse();
            throw TransactionEnded();
        }
        check_whole();
        PGconn* connection = std::exchange(connection_, nullptr);
        check_committed(execute(connection, {"COMMIT", {}}).get());
    }

    // The last statement and COMMIT, in one message. If the statement fails, so does the
    // transaction.
    Row end(const Statement& last) {
        check_whole();
        const auto results = execute_both(connection_, last, {"COMMIT", {}});
        connection_ = nullptr;
        check_committed(results.second.get());
        return row_of(results.first.get());
    }

    // COMMIT of a transaction that was lent.
    void end() {
        lent_ = false;
        commit();
    }

    void roll_back() noexcept {
        if (PGconn* connection = left()) PQclear(PQexec(connection, "ROLLBACK"));
    }

    // Of a transaction that has done nothing. It does not wait for the answer: the connection's
    // next user takes it.
    void leave() noexcept {
        PGconn* connection = left();
        if (connection == nullptr || PQsendQuery(connection, "ROLLBACK") == 1) return;
        shutdown(PQsocket(connection), SHUT_RDWR);
    }

    // The statement by which a transaction fails: there is no such savepoint.
    static constexpr char kFailing[] = "ROLLBACK TO SAVEPOINT idempotency_ended";

  private:
    // The connection, if there is something to roll back.
    PGconn* left() noexcept {
        PGconn* connection = std::exchange(connection_, nullptr);
        const bool open = connection != nullptr && PQstatus(connection) == CONNECTION_OK &&
                          PQtransactionStatus(connection) != PQTRANS_IDLE;
        return open ? connection : nullptr;
    }

    void open(PGconn* connection) {
        drain(connection);
        connection_ = connection;
    }

    void check_whole() {
        check();
        if (PQtransactionStatus(connection_) != PQTRANS_INERROR) return;
        throw SqlError("an error of a statement was hidden", "25P02");
    }

    static void check_committed(PGresult* result) {
        if (std::strcmp(PQcmdStatus(result), "COMMIT") == 0) return;
        throw SqlError("the transaction was rolled back", "25P02");
    }

    PGconn* connection_ = nullptr;
    bool lent_ = false, refused_ = false;
};

}  // namespace detail
}  // namespace idempotency
