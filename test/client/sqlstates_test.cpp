// Errors as a client sees them: by their SQLSTATE.
#include "support.hpp"

namespace idem::client {
namespace {

class Sqlstates : public ClientTest {
  protected:
    template <typename... Args>
    std::string of(const std::string& sql, Args&&... args) {
        return sqlstate_of([&] { run(client_, sql, std::forward<Args>(args)...); });
    }

    pqxx::connection client_;
};

TEST_F(Sqlstates, NoRecordIsID404) {
    EXPECT_EQ(of("SELECT idem_complete('none', token => 1, scope => 'client')"), "ID404");
    EXPECT_EQ(of("SELECT idem_fail('none', token => 1, scope => 'client')"), "ID404");
    EXPECT_EQ(of("SELECT idem_extend('none', 1, scope => 'client')"), "ID404");
    EXPECT_EQ(of("SELECT idem_checkpoint('none', 'paid', token => 1, scope => 'client')"), "ID404");
    EXPECT_EQ(of("SELECT idem_release('none', token => 1, scope => 'client')"), "ID404");
}

TEST_F(Sqlstates, AnotherClaimsTokenIsID409AndChangesNothing) {
    const std::int64_t token = *begin(client_, "key").token;
    const std::string before = record("key");
    for (const std::int64_t wrong : {token - 1, token + 1, std::int64_t{0}}) {
        EXPECT_EQ(sqlstate_of([&] { complete(client_, "key", "wrong", wrong); }), "ID409");
        EXPECT_EQ(of("SELECT idem_fail('key', token => $1, scope => 'client')", wrong), "ID409");
        EXPECT_EQ(of("SELECT idem_extend('key', $1, scope => 'client')", wrong), "ID409");
        EXPECT_EQ(of("SELECT idem_release('key', token => $1, scope => 'client')", wrong), "ID409");
    }
    EXPECT_EQ(record("key"), before);
    EXPECT_TRUE(complete(client_, "key", "right", token));
}

TEST_F(Sqlstates, BadArgumentsAre22023) {
    EXPECT_EQ(of("SELECT idem_begin('', scope => 'client')"), "22023");
    EXPECT_EQ(of("SELECT idem_begin(repeat('x', 256), scope => 'client')"), "22023");
    EXPECT_EQ(of("SELECT idem_begin(E'a\\nb', scope => 'client')"), "22023");
    EXPECT_EQ(of("SELECT idem_begin('key', scope => 'client', wait => '-1 s')"), "22023");
    EXPECT_EQ(of("SELECT idem_begin('key', scope => 'client', lease => '0')"), "22023");
}

TEST_F(Sqlstates, AMissingTokenIs22004) {
    ASSERT_EQ(begin(client_, "key").outcome, "execute");
    EXPECT_EQ(of("SELECT idem_complete('key', 200, scope => 'client')"), "22004");
}

TEST_F(Sqlstates, AReadOnlyTransactionIs25006ButMayLook) {
    const std::int64_t token = *begin(client_, "key").token;
    run(client_, "SET default_transaction_read_only TO on");
    EXPECT_EQ(of("SELECT idem_begin('key', scope => 'client')"), "25006");
    EXPECT_EQ(sqlstate_of([&] { complete(client_, "key", "no", token); }), "25006");
    EXPECT_EQ(of("SELECT idem_once('other', scope => 'client')"), "25006");
    EXPECT_EQ(value<std::string>(client_, "SELECT status FROM idem_get('key', scope => 'client')"),
              "in_progress");
}

TEST_F(Sqlstates, OnceThatCannotTellIs55P03) {
    pqxx::connection other;
    pqxx::work tx(other);
    ASSERT_EQ(begin(tx, "key").outcome, "execute");
    EXPECT_EQ(of("SELECT idem_once('key', scope => 'client', wait => '20 ms')"), "55P03");
    tx.abort();
    EXPECT_TRUE(value<bool>(client_, "SELECT idem_once('key', scope => 'client')"));
    EXPECT_FALSE(value<bool>(client_, "SELECT idem_once('key', scope => 'client')"));
}

TEST_F(Sqlstates, ABodyOverTheLimitIs54000) {
    run(client_, "SET idempotency.max_body_bytes TO 10");
    const std::int64_t token = *begin(client_, "key").token;
    EXPECT_EQ(sqlstate_of([&] { complete(client_, "key", "eleven byte", token); }), "54000");
    EXPECT_TRUE(complete(client_, "key", "ten bytes.", token));
}

TEST_F(Sqlstates, ADuplicateIsNoErrorAndItsTransactionGoesOn) {
    pqxx::connection other;
    pqxx::work holder(other);
    ASSERT_EQ(begin(holder, "key").outcome, "execute");
    pqxx::work tx(client_);
    EXPECT_EQ(begin(tx, "key").outcome, "in_progress");
    take_effect(tx, "another");
    tx.commit();
    EXPECT_EQ(effects(), 1);
}

}  // namespace
}  // namespace idem::client
