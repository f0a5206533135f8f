// The client's connection breaks before it has read whether COMMIT succeeded. The client can't
// know, so it asks again, and has to get the answer that it missed.
#include <sys/socket.h>

#include "support.hpp"

namespace idem::client {
namespace {

constexpr int kRounds = 20;

class LostAnswer : public ClientTest {
  protected:
    // Does the work in a transaction and, if asked, sends COMMIT; then closes the connection
    // without reading another byte. libpqxx's pipeline sends a statement at once and reads its
    // result only on request, and an explicit BEGIN keeps libpqxx from ending the transaction
    // itself.
    void work_and_hang_up(const std::string& key, const std::string& body, bool commit) {
        pqxx::connection client;
        pqxx::nontransaction tx(client);
        tx.exec("BEGIN");
        ASSERT_EQ(begin(tx, key).outcome, "execute");
        take_effect(tx, key);
        ASSERT_TRUE(complete(tx, key, body));
        pqxx::pipeline unread(tx);
        if (commit) unread.insert("COMMIT");
        ASSERT_EQ(::shutdown(client.sock(), SHUT_RDWR), 0);
        await_end_of(client.backendpid());
    }

    pqxx::connection retry_;
};

TEST_F(LostAnswer, RetryReplaysByteForByte) {
    for (int round = 0; round < kRounds; ++round) {
        const std::string key = "key " + std::to_string(round);
        const std::string body =
            "{\"n\": " + std::to_string(round) + ", \"a\":1.0,  \"a\":\"\u00e4\"}";
        work_and_hang_up(key, body, true);
        for (int again = 0; again < 2; ++again) {
            const Claim claim = begin(retry_, key);
            EXPECT_EQ(claim.outcome, "replay");
            EXPECT_EQ(claim.status_code, 201);
            EXPECT_EQ(claim.body, hex(body));
        }
    }
    EXPECT_EQ(effects(), kRounds);
}

TEST_F(LostAnswer, WithoutCommitTheRetryExecutes) {
    work_and_hang_up("key", "never stored", false);
    EXPECT_EQ(effects(), 0);
    const Claim claim = begin(retry_, "key");
    EXPECT_EQ(claim.outcome, "execute");
    EXPECT_EQ(claim.attempt, 1);
}

}  // namespace
}  // namespace idem::client
