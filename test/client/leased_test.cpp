// Leased claims between connections: any connection that presents the token has the claim.
#include "support.hpp"

namespace idem::client {
namespace {

enum : int { kStart = 1 };
constexpr int kRaces = 20;

class Leased : public ClientTest {
  protected:
    // The lease expires without a wait.
    void end_lease(const std::string& key) {
        run(admin_,
            "UPDATE idempotency.record SET lease_until = now() - interval '1 s'"
            " WHERE scope = 'client' AND key = $1",
            key);
    }

    std::string fenced(const std::string& sql, std::int64_t token) {
        return sqlstate_of([&] { run(first_, sql, token); });
    }

    pqxx::connection first_;
    pqxx::connection second_;
};

TEST_F(Leased, AnotherConnectionCompletesByToken) {
    const Claim claim = begin(first_, "key");
    ASSERT_EQ(claim.outcome, "execute");
    EXPECT_EQ(begin(second_, "key").outcome, "in_progress");
    EXPECT_TRUE(complete(second_, "key", "done", *claim.token));
    EXPECT_FALSE(complete(first_, "key", "again", *claim.token));
    const Claim replay = begin(first_, "key");
    EXPECT_EQ(replay.outcome, "replay");
    EXPECT_EQ(replay.body, hex("done"));
}

TEST_F(Leased, ACompletionWithItsEffectIsAtomic) {
    const Claim claim = begin(first_, "key");
    {
        pqxx::work tx(second_);
        take_effect(tx, "key");
        ASSERT_TRUE(complete(tx, "key", "rolled back", *claim.token));
        tx.abort();
    }
    EXPECT_EQ(begin(first_, "key").outcome, "in_progress");
    pqxx::work tx(second_);
    take_effect(tx, "key");
    ASSERT_TRUE(complete(tx, "key", "done", *claim.token));
    tx.commit();
    EXPECT_EQ(begin(first_, "key").body, hex("done"));
    EXPECT_EQ(effects(), 1);
}

TEST_F(Leased, TakeoverFencesTheFirst) {
    const Claim lost = begin(first_, "key");
    run(first_, "SELECT idem_checkpoint('key', 'charged', token => $1, scope => 'client')",
        *lost.token);
    end_lease("key");
    const Claim taken = begin(second_, "key");
    ASSERT_EQ(taken.outcome, "execute");
    EXPECT_EQ(taken.attempt, 2);
    EXPECT_GT(*taken.token, *lost.token);
    EXPECT_EQ(taken.recovery_point, "charged");

    const std::string before = record("key");
    EXPECT_EQ(fenced("SELECT idem_complete('key', token => $1, scope => 'client')", *lost.token),
              "ID409");
    EXPECT_EQ(fenced("SELECT idem_fail('key', token => $1, scope => 'client')", *lost.token),
              "ID409");
    EXPECT_EQ(fenced("SELECT idem_extend('key', $1, scope => 'client')", *lost.token), "ID409");
    EXPECT_EQ(
        fenced("SELECT idem_checkpoint('key', 'x', token => $1, scope => 'client')", *lost.token),
        "ID409");
    EXPECT_EQ(fenced("SELECT idem_release('key', token => $1, scope => 'client')", *lost.token),
              "ID409");
    EXPECT_EQ(record("key"), before);
    EXPECT_TRUE(complete(second_, "key", "by the second", *taken.token));
    EXPECT_EQ(begin(first_, "key").body, hex("by the second"));
}

// Late completion and takeover at the same moment: exactly one of them has the claim.
TEST_F(Leased, CompletionAndTakeoverExcludeEachOther) {
    for (int race = 0; race < kRaces; ++race) {
        const std::string key = "race " + std::to_string(race);
        const std::int64_t token = *begin(first_, key).token;
        end_lease(key);
        std::future<std::string> completion;
        std::future<std::string> takeover;
        Gate start(kStart);
        completion = std::async(std::launch::async, [&] {
            return sqlstate_of([&] {
                pqxx::work tx(first_);
                pass_gate(tx, kStart);
                complete(tx, key, "late", token);
                tx.commit();
            });
        });
        takeover = std::async(std::launch::async, [&] {
            pqxx::work tx(second_);
            pass_gate(tx, kStart);
            const Claim claim = begin(tx, key, kPatient);
            tx.commit();
            return claim.outcome;
        });
        start.await(2);
        start.open();
        const std::string error = completion.get();
        EXPECT_EQ(takeover.get(), error.empty() ? "replay" : "execute") << key;
        EXPECT_TRUE(error.empty() || error == "ID409") << error;
    }
}

TEST_F(Leased, AHeldClaimEndsWithItsConnection) {
    std::optional<pqxx::connection> holder{std::in_place};
    const Claim claim = begin(*holder, "key", {nullptr, "1 h", true});
    ASSERT_EQ(claim.outcome, "execute");
    EXPECT_EQ(begin(second_, "key").outcome, "in_progress");
    const int backend = holder->backendpid();
    holder.reset();
    await_end_of(backend);
    const Claim taken = begin(second_, "key");
    EXPECT_EQ(taken.outcome, "execute");
    EXPECT_EQ(taken.attempt, 2);
    EXPECT_EQ(sqlstate_of([&] { complete(admin_, "key", "too late", *claim.token); }), "ID409");
}

}  // namespace
}  // namespace idem::client
