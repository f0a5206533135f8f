// Many connections, one key. Needs a server with max_connections above its default.
#include <atomic>

#include "support.hpp"

namespace idem::client {
namespace {

constexpr int kConnections = 100;
constexpr int kWaiters = 50;

enum : int { kStart = 1, kFinish = 2 };

class OneKey : public ClientTest {
  protected:
    // All connections ask at the same moment. If gated, the executing one begins only when all
    // others have been answered.
    std::vector<Claim> ask_from_all_at_once(bool gated) {
        std::atomic<int> answered{0};
        std::vector<std::future<Claim>> callers;
        Gate start(kStart);
        Gate finish(kFinish);
        callers = start_all(kConnections, [&](int) { return ask(gated, answered); });
        start.await(kConnections);
        start.open();
        if (gated) {
            finish.await(1);
            wait_until("the others are answered", [&] { return answered == kConnections - 1; });
        }
        finish.open();
        return collect(callers);
    }

    static Claim ask(bool gated, std::atomic<int>& answered) {
        pqxx::connection connection;
        pqxx::work tx(connection);
        pass_gate(tx, kStart);
        const Claim claim = begin(tx, "key");
        if (claim.outcome == "execute") {
            if (gated) pass_gate(tx, kFinish);
            take_effect(tx, "key");
            complete(tx, "key", "made by " + std::to_string(connection.backendpid()));
        }
        tx.commit();
        ++answered;
        return claim;
    }

    std::string stored_body() {
        return value<std::string>(
            admin_, "SELECT body FROM idempotency.record WHERE scope = 'client' AND key = 'key'");
    }

    void expect_replays_alike(const std::vector<Claim>& claims) {
        const std::string body = stored_body();
        for (const Claim& claim : claims) {
            if (claim.outcome != "replay") continue;
            EXPECT_EQ(claim.body, body);
            EXPECT_EQ(claim.status_code, 201);
        }
    }
};

TEST_F(OneKey, OthersGetInProgressWhileOneExecutes) {
    const auto claims = ask_from_all_at_once(true);
    EXPECT_EQ(count_outcomes(claims, "execute"), 1);
    EXPECT_EQ(count_outcomes(claims, "in_progress"), kConnections - 1);
    EXPECT_EQ(effects(), 1);
    EXPECT_EQ(our_locks(true), 0);
}

TEST_F(OneKey, OneExecutesWhateverTheTiming) {
    const auto claims = ask_from_all_at_once(false);
    EXPECT_EQ(count_outcomes(claims, "execute"), 1);
    EXPECT_EQ(count_outcomes(claims, "in_progress") + count_outcomes(claims, "replay"),
              kConnections - 1);
    EXPECT_EQ(effects(), 1);
    expect_replays_alike(claims);
    EXPECT_EQ(our_locks(true), 0);
}

TEST_F(OneKey, AllReplayOnceItIsDone) {
    std::atomic<int> answered{0};
    ASSERT_EQ(ask(false, answered).outcome, "execute");
    const auto claims = ask_from_all_at_once(false);
    EXPECT_EQ(count_outcomes(claims, "replay"), kConnections);
    EXPECT_EQ(effects(), 1);
    expect_replays_alike(claims);
}

class Waiters : public ClientTest {
  protected:
    static Claim wait_for_answer(int) {
        pqxx::connection connection;
        pqxx::work tx(connection);
        const Claim claim = begin(tx, "key", kPatient);
        if (claim.outcome == "execute") {
            take_effect(tx, "key");
            complete(tx, "key", "from a waiter");
        }
        tx.commit();
        return claim;
    }

    pqxx::connection holder_;
    std::vector<std::future<Claim>> waiters_;
};

TEST_F(Waiters, FiftyGetTheOneAnswer) {
    pqxx::work tx(holder_);
    ASSERT_EQ(begin(tx, "key").outcome, "execute");
    waiters_ = start_all(kWaiters, wait_for_answer);
    await_waiters(kWaiters);
    take_effect(tx, "key");
    ASSERT_TRUE(complete(tx, "key", "from the holder"));
    tx.commit();

    const auto claims = collect(waiters_);
    EXPECT_EQ(count_outcomes(claims, "replay"), kWaiters);
    for (const Claim& claim : claims) EXPECT_EQ(claim.body, hex("from the holder"));
    EXPECT_EQ(effects(), 1);
    EXPECT_EQ(our_locks(true), 0);
}

TEST_F(Waiters, OneOfFiftySucceedsAHolderThatRollsBack) {
    pqxx::work tx(holder_);
    ASSERT_EQ(begin(tx, "key").outcome, "execute");
    take_effect(tx, "key");
    waiters_ = start_all(kWaiters, wait_for_answer);
    await_waiters(kWaiters);
    tx.abort();

    const auto claims = collect(waiters_);
    EXPECT_EQ(count_outcomes(claims, "execute"), 1);
    EXPECT_EQ(count_outcomes(claims, "replay"), kWaiters - 1);
    EXPECT_EQ(effects(), 1);
    EXPECT_EQ(our_locks(true), 0);
}

}  // namespace
}  // namespace idem::client
