// The driver for libpqxx, from 6.4 to 8.
#pragma once

#include <functional>
#include <memory>
#include <pqxx/pqxx>
#include <string>
#include <utility>

#include "driver.hpp"
#include "protocol.hpp"
#include "wire.hpp"

namespace idempotency {

namespace detail {

#if PQXX_VERSION_MAJOR < 7
using PqxxConnection = pqxx::connection_base;
#else
using PqxxConnection = pqxx::connection;
#endif

// libpqxx keeps libpq's connection to itself, from version 8 on as void*. An explicit instantiation
// may name a private member.
template <auto Member>
struct Raw {
    friend PGconn* raw(const PqxxConnection& connection) {
        return static_cast<PGconn*>((connection.*Member)());
    }
};
template struct Raw<&PqxxConnection::raw_connection>;
PGconn* raw(const PqxxConnection& connection);

template <pqxx::isolation_level Level>
constexpr const char* begin_of() {
    if (Level == pqxx::serializable) return "BEGIN ISOLATION LEVEL SERIALIZABLE";
    if (Level == pqxx::repeatable_read) return "BEGIN ISOLATION LEVEL REPEATABLE READ";
    return "BEGIN";
}

}  // namespace detail

// A transaction of libpqxx that a handler can't leave: after an error, or a commit() or abort() of
// the handler, it fails until its owner ends it. libpqxx's own transaction ends then, without the
// handler's notice, and the next statement would take effect by itself.
//
// A function that takes pqxx::transaction_base& can have it too, with one difference: the text
// COMMIT or ROLLBACK is noticed at the end only.
template <pqxx::isolation_level Level = pqxx::read_committed>
class PqxxTransaction final : public pqxx::dbtransaction {
    using Base = pqxx::dbtransaction;

  public:
    explicit PqxxTransaction(pqxx::connection& connection) : PqxxTransaction(Tag(), connection) {
        begin([&] { guard_.begin(detail::raw(connection), detail::begin_of<Level>()); });
    }

    // BEGIN and the first statement in one message.
    PqxxTransaction(pqxx::connection& connection, const Statement& first, Row& answer)
        : PqxxTransaction(Tag(), connection) {
        begin([&] {
            answer = guard_.begin(detail::raw(connection), detail::begin_of<Level>(), first);
        });
    }

    ~PqxxTransaction() noexcept override { leave(); }

    // Of a handler: makes the transaction fail, and throws TransactionEnded.
    void abort() {
        guard_.refuse();
        Base::abort();
    }

    template <typename... Args>
    auto exec(Args&&... args) {
        guard_.check();
        return Base::exec(std::forward<Args>(args)...);
    }
    template <typename... Args>
    auto exec0(Args&&... args) {
        guard_.check();
        return Base::exec0(std::forward<Args>(args)...);
    }
    template <typename... Args>
    auto exec1(Args&&... args) {
        guard_.check();
        return Base::exec1(std::forward<Args>(args)...);
    }
    template <typename... Args>
    auto exec_n(Args&&... args) {
        guard_.check();
        return Base::exec_n(std::forward<Args>(args)...);
    }
    template <typename... Args>
    auto exec_params(Args&&... args) {
        guard_.check();
        return Base::exec_params(std::forward<Args>(args)...);
    }
    template <typename... Args>
    auto exec_params0(Args&&... args) {
        guard_.check();
        return Base::exec_params0(std::forward<Args>(args)...);
    }
    template <typename... Args>
    auto exec_params1(Args&&... args) {
        guard_.check();
        return Base::exec_params1(std::forward<Args>(args)...);
    }
    template <typename... Args>
    auto exec_params_n(Args&&... args) {
        guard_.check();
        return Base::exec_params_n(std::forward<Args>(args)...);
    }
    template <typename... Args>
    auto exec_prepared(Args&&... args) {
        guard_.check();
        return Base::exec_prepared(std::forward<Args>(args)...);
    }
    template <typename... Args>
    auto exec_prepared0(Args&&... args) {
        guard_.check();
        return Base::exec_prepared0(std::forward<Args>(args)...);
    }
    template <typename... Args>
    auto exec_prepared1(Args&&... args) {
        guard_.check();
        return Base::exec_prepared1(std::forward<Args>(args)...);
    }
    template <typename... Args>
    auto exec_prepared_n(Args&&... args) {
        guard_.check();
        return Base::exec_prepared_n(std::forward<Args>(args)...);
    }
#if PQXX_VERSION_MAJOR >= 7
    template <typename... Types, typename... Args>
    auto query(Args&&... args) {
        guard_.check();
        return Base::template query<Types...>(std::forward<Args>(args)...);
    }
    template <typename Type, typename... Args>
    auto query_value(Args&&... args) {
        guard_.check();
        return Base::template query_value<Type>(std::forward<Args>(args)...);
    }
#endif

  private:
    template <pqxx::isolation_level>
    friend struct BasicPqxx;
    struct Tag {};

#if PQXX_VERSION_MAJOR < 7
    PqxxTransaction(Tag, pqxx::connection& connection)
        : pqxx::internal::namedclass("idempotency::transaction"), Base(connection, true) {}

    template <typename Begin>
    void begin(const Begin& begin) {
        begin_ = begin;
        Base::Begin();  // calls do_begin
    }
    void leave() noexcept {
        leaving_ = true;
        Base::End();
    }

    void do_begin() override {
        std::exchange(begin_, nullptr)();
    }
    // An error leaves the transaction as the server has it: failed.
    pqxx::result do_exec(const char query[]) override {
        guard_.check();
        return direct_exec(query);
    }
    void do_commit() override {
        guard_.commit();
    }
    void do_abort() override {
        if (!leaving_) guard_.refuse();
    }

    std::function<void()> begin_;
    bool leaving_ = false;
#else
    PqxxTransaction(Tag, pqxx::connection& connection)
        : Base(connection, "", std::make_shared<std::string>(detail::Guard::kFailing)) {}

    template <typename Begin>
    void begin(const Begin& begin) {
        this->register_transaction();
        try {
            begin();
        } catch (...) {
            leave();
            throw;
        }
    }
    void leave() noexcept {
        this->set_rollback_cmd(nullptr);  // the guard's part
        this->close();
    }

#if PQXX_VERSION_MAJOR < 8
    void do_commit() override {
        guard_.commit();
    }
#else
    void do_commit(pqxx::sl) override {
        guard_.commit();
    }
#endif
#endif

    detail::Guard guard_;
};

template <pqxx::isolation_level Level = pqxx::read_committed>
struct BasicPqxx {
    using Connection = pqxx::connection;
    using Transaction = PqxxTransaction<Level>;

    // libpqxx 6 would replace a lost connection silently, without the pool's Setup: the new one
    // would have the rights of the login role. libpqxx 7 never does that.
    static std::unique_ptr<Connection> connect(const std::string& conninfo) {
        auto connection = std::make_unique<Connection>(conninfo);
#if PQXX_VERSION_MAJOR < 7
        connection->inhibit_reactivation(true);
#endif
        return connection;
    }

    static PGconn* raw(Connection& connection) {
        return detail::raw(connection);
    }
    static detail::Guard& guard(Transaction& tx) {
        return tx.guard_;
    }

    static Row run(Transaction& tx, const char* statement, const Values& values) {
        tx.guard_.check();
        return run_in(tx, statement, values);
    }

    static Row run_alone(Connection& connection, const char* statement, const Values& values) {
        pqxx::nontransaction tx(connection);
        Row row = run_in(tx, statement, values);
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
    static Row run_in(pqxx::transaction_base& tx, const char* statement, const Values& values) {
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

    template <typename Type>
    static bool is_a(const std::exception& error) {
        return dynamic_cast<const Type*>(&error) != nullptr;
    }
};

using Pqxx = BasicPqxx<>;

// Call it in the transaction of the message's effects. True for the first delivery. A pqxx::work
// would not do: see PqxxTransaction.
template <pqxx::isolation_level Level>
bool once(PqxxTransaction<Level>& tx, const std::string& key, const std::string& scope,
          const std::string& principal = "") {
    const auto run = [&](const char* sql, const Values& values) {
        return BasicPqxx<Level>::run(tx, sql, values);
    };
    return protocol::once(run, key, scope, principal);
}

}  // namespace idempotency
