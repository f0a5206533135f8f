// One connection, as from a pool, for many keys and with every kind of end in between. State left
// behind would affect the connection's next user.
#include "support.hpp"

namespace idem::client {
namespace {

constexpr int kRounds = 50;

class PooledConnection : public ClientTest {
  protected:
    void SetUp() override {
        ClientTest::SetUp();
        ASSERT_EQ(begin(holder_, "taken").outcome, "execute");
    }

  public:  // so that the test can list them
    // Each is one request of the round, and ends its own transaction.
    void commits(const std::string& key) {
        pqxx::work tx(pooled_);
        ASSERT_EQ(begin(tx, key).outcome, "execute");
        EXPECT_EQ(our_locks(true), 2) << "this look can't see a lock";
        take_effect(tx, key);
        complete(tx, key, "done");
        tx.commit();
    }

    void rolls_back(const std::string& key) {
        pqxx::work tx(pooled_);
        ASSERT_EQ(begin(tx, key).outcome, "execute");
        complete(tx, key, "never");
        tx.abort();
    }

    void fails_after_begin(const std::string& key) {
        EXPECT_EQ(sqlstate_of([&] {
                      pqxx::work tx(pooled_);
                      ASSERT_EQ(begin(tx, key).outcome, "execute");
                      tx.exec("SELECT 1 / 0");
                  }),
                  "22012");
    }

    void fails_in_the_protocol(const std::string& key) {
        EXPECT_EQ(sqlstate_of([&] {
                      pqxx::work tx(pooled_);
                      ASSERT_EQ(begin(tx, key).outcome, "execute");
                      complete(tx, key + " of somebody else", "no", 1);
                  }),
                  "ID404");
    }

    void rolls_back_to_a_savepoint(const std::string& key) {
        pqxx::work tx(pooled_);
        tx.exec("SAVEPOINT s");
        ASSERT_EQ(begin(tx, key).outcome, "execute");
        complete(tx, key, "undone");
        tx.exec("ROLLBACK TO s");
        ASSERT_EQ(begin(tx, key).outcome, "execute");
        complete(tx, key, "done");
        tx.commit();
    }

    void loses(const std::string&) {
        pqxx::work tx(pooled_);
        EXPECT_EQ(begin(tx, "taken").outcome, "in_progress");
        EXPECT_EQ(begin(tx, "taken", {"1 ms"}).outcome, "in_progress");
        tx.commit();
    }

    void times_out_while_waiting(const std::string&) {
        EXPECT_EQ(sqlstate_of([&] {
                      pqxx::work tx(pooled_);
                      tx.exec("SET LOCAL statement_timeout TO '1 ms'");
                      begin(tx, "taken", {"10 s"});
                  }),
                  "57014");
    }

    void releases(const std::string& key) {
        pqxx::work tx(pooled_);
        ASSERT_EQ(begin(tx, key).outcome, "execute");
        tx.exec_params("SELECT idem_release($1, scope => 'client')", key);
        tx.commit();
        ASSERT_EQ(begin(pooled_, key).outcome, "execute") << "released keys are free";
    }

    void completes_a_held_lease(const std::string& key) {
        const Claim claim = begin(pooled_, key, {nullptr, "1 h", true});
        ASSERT_EQ(claim.outcome, "execute");
        EXPECT_EQ(our_locks(true), 1) << "hold takes no lock";
        EXPECT_TRUE(complete(pooled_, key, "done", *claim.token));
    }

  protected:
    pqxx::connection other_;
    pqxx::work holder_{other_};
    pqxx::connection pooled_;
};

TEST_F(PooledConnection, LeavesNoLockBehind) {
    using Request = void (PooledConnection::*)(const std::string&);
    constexpr Request kRequests[] = {
        &PooledConnection::commits,
        &PooledConnection::rolls_back,
        &PooledConnection::fails_after_begin,
        &PooledConnection::fails_in_the_protocol,
        &PooledConnection::rolls_back_to_a_savepoint,
        &PooledConnection::loses,
        &PooledConnection::times_out_while_waiting,
        &PooledConnection::releases,
        &PooledConnection::completes_a_held_lease,
    };
    const int backend = pooled_.backendpid();
    int number = 0;
    for (int round = 0; round < kRounds; ++round) {
        for (const Request request : kRequests) {
            (this->*request)("key " + std::to_string(number++));
            ASSERT_EQ(our_locks(true), 1) << "request " << number << ": the holder's alone";
        }
    }
    holder_.abort();
    EXPECT_EQ(our_locks(true), 0);
    EXPECT_EQ(our_locks(false), 0);
    EXPECT_EQ(pooled_.backendpid(), backend) << "all of it was to be one connection's";
    EXPECT_EQ(effects(), kRounds);
}

}  // namespace
}  // namespace idem::client
