// Waiting for another session's answer, and giving up in the two ways that only a client has: by
// its own cancel request, and by closing its connection. (Time, timeouts and the server's cancel:
// waiter_gives_up.spec.)
#include "support.hpp"

namespace idem::client {
namespace {

class Waiting : public ClientTest {
  protected:
    // The holder ends as if no session had waited, and the connection that gave up is usable.
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
};

TEST_F(Waiting, CancelledByTheClient) {
    pqxx::work holder(holding_);
    ASSERT_EQ(begin(holder, "key").outcome, "execute");
    auto waiting = std::async(std::launch::async, [this] {
        return sqlstate_of([this] {
            pqxx::work tx(waiter_);
            begin(tx, "key", kPatient);
        });
    });
    await_waiters(1);
    waiter_.cancel_query();
    EXPECT_EQ(waiting.get(), "57014");
    expect_untouched_holder(holder);
}

TEST_F(Waiting, EndedWithItsBackend) {
    pqxx::work holder(holding_);
    ASSERT_EQ(begin(holder, "key").outcome, "execute");
    {
        pqxx::connection doomed;
        auto waiting = std::async(std::launch::async, [&] {
            pqxx::work tx(doomed);
            begin(tx, "key", kPatient);
        });
        await_waiters(1);
        run(admin_, "SELECT pg_terminate_backend($1, 10000)", doomed.backendpid());
        EXPECT_THROW(waiting.get(), pqxx::failure);
    }
    expect_untouched_holder(holder);
}

}  // namespace
}  // namespace idem::client
