// What a handler may do with its transaction: after an error, nothing of it commits.
#include <idempotency/transactionally.hpp>
#include <map>

#include "support.hpp"

namespace idempotency {
namespace {

using Transaction = Pqxx::Transaction;
using Act = std::function<void(Transaction&)>;

// Fails in the ways that libpqxx has. Libpqxx 6 ends the transaction after some of them.
const std::map<std::string, Act>& failures() {
    static const std::map<std::string, Act> known = {
        {"exec", [](auto& tx) { tx.exec("SELECT 1/0"); }},
        {"exec0", [](auto& tx) { tx.exec0("SELECT 1/0"); }},
        {"exec1", [](auto& tx) { tx.exec1("SELECT 1/0"); }},
        {"exec_n", [](auto& tx) { tx.exec_n(1, "SELECT 1/0"); }},
        {"exec_params", [](auto& tx) { tx.exec_params("SELECT 1/$1::integer", 0); }},
        {"exec_params1", [](auto& tx) { tx.exec_params1("SELECT 1/$1::integer", 0); }},
        {"exec_prepared",
         [](auto& tx) {
             tx.conn().prepare("divide", "SELECT 1/$1::integer");
             tx.exec_prepared("divide", 0);
         }},
        {"through the base",
         [](pqxx::transaction_base& tx) { tx.exec_params("SELECT 1/$1::integer", 0); }},
        {"exec through the base", [](pqxx::transaction_base& tx) { tx.exec("SELECT 1/0"); }},
        {"abort", [](auto& tx) { tx.abort(); }},
        {"abort through the base", [](pqxx::transaction_base& tx) { tx.abort(); }},
        {"ROLLBACK", [](auto& tx) { tx.exec("ROLLBACK"); }},
        {"ROLLBACK with parameters", [](auto& tx) { tx.exec_params("ROLLBACK"); }},
    };
    return known;
}

// Ends the transaction as if the work were done.
const std::map<std::string, Act>& commits() {
    static const std::map<std::string, Act> known = {
        {"commit", [](auto& tx) { tx.commit(); }},
        {"commit through the base", [](pqxx::transaction_base& tx) { tx.commit(); }},
        {"COMMIT", [](auto& tx) { tx.exec("COMMIT"); }},
        {"COMMIT with parameters", [](auto& tx) { tx.exec_params("COMMIT"); }},
    };
    return known;
}

class Careless : public testing::Test {
  protected:
    static void SetUpTestSuite() { prepare_database(); }

    // Writes, does it, hides its error, and goes on writing by each call.
    void write_around(Transaction& tx, const Act& act) {
        tx.exec_params(kEffect, key);
        hide([&] { act(tx); });
        hide([&] { tx.exec_params(kEffect, key); });
        hide([&] { tx.exec("INSERT INTO client_effect VALUES (" + tx.quote(key) + ")"); });
        hide([&] { tx.exec0("INSERT INTO client_effect VALUES (" + tx.quote(key) + ")"); });
    }

    template <typename Work>
    static void hide(const Work& work) try {
        work();
    } catch (const std::exception&) {
    }

    void try_all(const std::map<std::string, Act>& acts,
                 const std::function<void(const Act&)>& run) {
        for (const auto& [name, act] : acts) {
            SCOPED_TRACE(name);
            key = unique("careless");
            EXPECT_ANY_THROW(run(act));
            EXPECT_EQ(effects(key), 0);
            EXPECT_NE(status(key), "completed");
        }
    }

    void transact(const Act& act) {
        transactionally(pool, call_for(key), {}, [&](Transaction& tx, const Decision&) {
            write_around(tx, act);
            return Answer{201, {}, ""};
        });
    }

    void step(const Act& act) {
        leased(pool, call_for(key), {}, [&](LeasedClaim<Pqxx> claim) {
            claim.step("point", [&](Transaction& tx) {
                write_around(tx, act);
                return nlohmann::json();
            });
            return std::move(claim).finish(Answer{201, {}, ""});
        });
    }

    void finish(const Act& act) {
        leased(pool, call_for(key), {}, [&](LeasedClaim<Pqxx> claim) {
            return std::move(claim).finish([&](Transaction& tx) {
                write_around(tx, act);
                return Answer{201, {}, ""};
            });
        });
    }

    void handle_message(const Act& act) {
        const auto loan = pool.lend();
        Transaction tx(**loan);
        ASSERT_TRUE(once(tx, key, "test", "me"));
        write_around(tx, act);
        tx.commit();
    }

    Pool<Pqxx> pool{"", {}};
    std::string key;
};

TEST_F(Careless, error_that_is_hidden_in_a_transaction) {
    try_all(failures(), [this](const Act& act) { transact(act); });
}

TEST_F(Careless, error_that_is_hidden_in_a_step) {
    try_all(failures(), [this](const Act& act) { step(act); });
}

TEST_F(Careless, error_that_is_hidden_in_the_last_step) {
    try_all(failures(), [this](const Act& act) { finish(act); });
}

TEST_F(Careless, error_that_is_hidden_with_a_message) {
    try_all(failures(), [this](const Act& act) { handle_message(act); });
}

TEST_F(Careless, commit_in_a_transaction) {
    try_all(commits(), [this](const Act& act) { transact(act); });
}

TEST(ByteaOutput, escape_changes_no_replay) {
    if (is_pooled()) GTEST_SKIP();
    prepare_database();
    Pool<Pqxx> pool("options='-c bytea_output=escape'", {});
    const std::string body("\0\\\xFF{}", 5);
    const auto key = unique("escape");
    const auto run = [&] {
        return transactionally(pool, call_for(key), {}, [&](auto&, const Decision&) {
            return Answer{201, {}, body};
        });
    };
    EXPECT_TRUE(run().first.execute());
    EXPECT_EQ(run().first.body, body);
}

class PreparedStatements : public testing::Test {
  protected:
    static void SetUpTestSuite() { prepare_database(); }
    static PoolOptions one_connection() {
        PoolOptions options;
        options.size = 1;
        return options;
    }

    // How often the handler ran.
    int transact(const std::string& key, const Act& act) {
        int runs = 0;
        transactionally(pool, call_for(key), {}, [&](Transaction& tx, const Decision&) {
            ++runs;
            tx.exec_params(kEffect, key);
            act(tx);
            return Answer{201, {}, ""};
        });
        EXPECT_EQ(effects(key), 1);
        EXPECT_EQ(status(key), "completed");
        return runs;
    }

    Pool<Pqxx> pool{"", one_connection()};
};

TEST_F(PreparedStatements, are_prepared_once_for_a_connection) {
    if (is_pooled()) GTEST_SKIP();
    int count = 0;
    const auto look = [&](Transaction& tx) {
        count = tx.exec1("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'idem%'")[0]
                    .as<int>();
    };
    transact(unique("prepared"), look);
    EXPECT_EQ(count, 1);  // idem_complete follows
    for (int i = 0; i < 2; ++i) {
        transact(unique("prepared"), look);
        EXPECT_EQ(count, 2);
    }
}

TEST_F(PreparedStatements, may_be_deallocated_in_a_handler) {
    const auto deallocate = [](Transaction& tx) { tx.exec("DEALLOCATE ALL"); };
    EXPECT_LE(transact(unique("deallocated"), deallocate), 2);
    EXPECT_EQ(transact(unique("deallocated"), deallocate), 1);
}

TEST_F(PreparedStatements, may_be_deallocated_between_requests) {
    const auto nothing = [](Transaction&) {};
    transact(unique("discarded"), nothing);
    {
        const auto loan = pool.lend();
        pqxx::nontransaction(**loan).exec("DISCARD ALL");
    }
    EXPECT_EQ(transact(unique("discarded"), nothing), 1);
}

}  // namespace
}  // namespace idempotency
