// Waiting for another's answer, and giving up: by time, by cancel, by timeout, by a dead
// connection.
#include "support.hpp"

namespace idem::client {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class Waiting : public ClientTest {
  protected:
    // Asks and waits in a thread of its own; the answer is an outcome or the SQLSTATE.
    std::future<std::string> start_waiting(const char* wait) {
        return std::async(std::launch::async, [this, wait] {
            std::string outcome;
            const std::string error = sqlstate_of([&] {
                pqxx::work tx(waiter_);
                outcome = begin(tx, "key", {wait}).outcome;
                tx.commit();
            });
            return error.empty() ? outcome : error;
        });
    }

    void await_latch() {
        wait_until("the waiter sleeps", [&] {
            return value<bool>(admin_,
                               "SELECT EXISTS (SELECT FROM pg_stat_activity"
                               " WHERE pid = $1 AND wait_event_type = 'Extension')",
                               waiter_.backendpid());
        });
    }

    void cancel_by_backend() { run(admin_, "SELECT pg_cancel_backend($1)", waiter_.backendpid()); }

    // The holder ends as if nobody had ever waited, and the connection that gave up is usable.
    void expect_untouched_holder(pqxx::work& holder) {
        EXPECT_EQ(our_locks(false), 0);
        EXPECT_EQ(our_locks(true), 1);
        EXPECT_TRUE(complete(holder, "key", "done"));
        holder.commit();
        EXPECT_EQ(our_locks(true), 0);
        EXPECT_EQ(begin(waiter_, "key").body, hex("done"));
    }

    pqxx::connection holding_;
    pqxx::connection waiter_;
    std::future<std::string> waiting_;
};

TEST_F(Waiting, EndsWhenTheTimeIsOver) {
    pqxx::work holder(holding_);
    ASSERT_EQ(begin(holder, "key").outcome, "execute");
    const auto start = Clock::now();
    EXPECT_EQ(start_waiting("300 ms").get(), "in_progress");
    EXPECT_GE(Clock::now() - start, milliseconds(300));
    expect_untouched_holder(holder);
}

TEST_F(Waiting, TheTransactionGoesOnAfterwards) {
    pqxx::work holder(holding_);
    ASSERT_EQ(begin(holder, "key").outcome, "execute");
    pqxx::work tx(waiter_);
    take_effect(tx, "before");
    EXPECT_EQ(begin(tx, "key", {"20 ms"}).outcome, "in_progress");
    take_effect(tx, "after");
    tx.commit();
    EXPECT_EQ(effects(), 2);
    expect_untouched_holder(holder);
}

// The answer came with the key's lock, which is of no use to a transaction that won't execute.
TEST_F(Waiting, WhoeverIsAnsweredKeepsNoLock) {
    pqxx::work holder(holding_);
    ASSERT_EQ(begin(holder, "key").outcome, "execute");
    pqxx::work tx(waiter_);
    auto outcome =
        std::async(std::launch::async, [&] { return begin(tx, "key", {"20 s"}).outcome; });
    await_waiters(1);
    EXPECT_TRUE(complete(holder, "key", "done"));
    holder.commit();
    EXPECT_EQ(outcome.get(), "replay");
    EXPECT_EQ(our_locks(true), 0) << "with the transaction still open";
    tx.commit();
}

TEST_F(Waiting, CancelledByTheBackendFunction) {
    pqxx::work holder(holding_);
    ASSERT_EQ(begin(holder, "key").outcome, "execute");
    waiting_ = start_waiting("20 s");
    await_waiters(1);
    cancel_by_backend();
    EXPECT_EQ(waiting_.get(), "57014");
    expect_untouched_holder(holder);
}

TEST_F(Waiting, CancelledByTheClient) {
    pqxx::work holder(holding_);
    ASSERT_EQ(begin(holder, "key").outcome, "execute");
    waiting_ = start_waiting("20 s");
    await_waiters(1);
    waiter_.cancel_query();
    EXPECT_EQ(waiting_.get(), "57014");
    expect_untouched_holder(holder);
}

TEST_F(Waiting, EndedByStatementTimeout) {
    pqxx::work holder(holding_);
    ASSERT_EQ(begin(holder, "key").outcome, "execute");
    run(waiter_, "SET statement_timeout TO '50 ms'");
    EXPECT_EQ(start_waiting("20 s").get(), "57014");
    expect_untouched_holder(holder);
}

TEST_F(Waiting, EndedWithItsBackend) {
    pqxx::work holder(holding_);
    ASSERT_EQ(begin(holder, "key").outcome, "execute");
    {
        pqxx::connection doomed;
        auto waiting = std::async(std::launch::async, [&] {
            pqxx::work tx(doomed);
            begin(tx, "key", {"20 s"});
        });
        await_waiters(1);
        run(admin_, "SELECT pg_terminate_backend($1, 10000)", doomed.backendpid());
        EXPECT_THROW(waiting.get(), pqxx::failure);
    }
    expect_untouched_holder(holder);
}

TEST_F(Waiting, ForALeaseEndsWithTheAnswer) {
    const std::int64_t token = *begin(holding_, "key", {nullptr, "1 h"}).token;
    waiting_ = start_waiting("20 s");
    await_latch();
    EXPECT_TRUE(complete(holding_, "key", "done", token));
    EXPECT_EQ(waiting_.get(), "replay");
}

TEST_F(Waiting, ForALeaseIsCancelled) {
    const std::int64_t token = *begin(holding_, "key", {nullptr, "1 h"}).token;
    const std::string before = record("key");
    waiting_ = start_waiting("20 s");
    await_latch();
    cancel_by_backend();
    EXPECT_EQ(waiting_.get(), "57014");
    EXPECT_EQ(record("key"), before);
    EXPECT_EQ(our_locks(true), 0);
    EXPECT_TRUE(complete(holding_, "key", "done", token));
}

TEST_F(Waiting, ForALeaseEndsWhenTheTimeIsOver) {
    ASSERT_EQ(begin(holding_, "key", {nullptr, "1 h"}).outcome, "execute");
    const std::string before = record("key");
    const auto start = Clock::now();
    EXPECT_EQ(start_waiting("100 ms").get(), "in_progress");
    EXPECT_GE(Clock::now() - start, milliseconds(100));
    EXPECT_EQ(record("key"), before);
}

}  // namespace
}  // namespace idem::client
