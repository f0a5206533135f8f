// Workers on a real server, with both drivers.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <future>
#include <idempotency/worker.hpp>

#include "support.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;

template <typename Driver>
class Workers : public testing::Test {
  protected:
    using Transaction = typename Driver::Transaction;
    using Claim = LeasedClaim<Driver>;

    static void SetUpTestSuite() { prepare_database(); }

    void SetUp() override {
        options.scope = unique("worker");
        options.poll = 20ms;
        options.on_error = [this](const std::exception& error, const Due*) {
            const std::lock_guard<std::mutex> lock(mutex);
            errors.emplace_back(error.what());
        };
        policy("");
    }

    void policy(const std::string& more) {
        ask("SELECT idem_policy_set($1, store_request => true, retry_base => '0'" + more + ")",
            {options.scope});
    }

    // Its first attempt has failed.
    std::string queue(const std::string& request = R"({"to": "shop"})") {
        const auto key = unique("key");
        ask("SELECT idem_begin($1, $2, scope => $3, principal => 'me', method => 'POST',"
            " path => '/hook', lease => '1 min')",
            {key, request, options.scope});
        ask("SELECT idem_fail($1, 'first', retryable => true, retry_after => '0', scope => $2,"
            " principal => 'me', token => (SELECT token FROM idempotency.record WHERE key = $1))",
            {key, options.scope});
        return key;
    }

    std::string told(const std::string& key) {
        return ask("SELECT concat_ws(' ', status, attempt, status_code, error)"
                   " FROM idempotency.records WHERE key = $1",
                   {key})
            .value_or("");
    }

    void wait_for(const std::string& key, const std::string& awaited) {
        for (const auto end = Clock::now() + 60s; status(key, options.scope) != awaited;) {
            ASSERT_LT(Clock::now(), end) << told(key);
            std::this_thread::sleep_for(5ms);
        }
    }

    // Runs it, and stops it when `body` returns.
    template <typename Made, typename Body>
    void with(Made& worker, const Body& body) {
        auto run = std::async(std::launch::async, [&] { worker.run(); });
        body();
        worker.stop();
        run.get();
    }

    auto pay() {
        return [](Transaction& tx, const Due& due) { Driver::run(tx, kEffect, {due.key}); };
    }

    void wait_for_errors(std::size_t count) {
        for (const auto end = Clock::now() + 60s; errors_seen().size() < count;) {
            ASSERT_LT(Clock::now(), end);
            std::this_thread::sleep_for(5ms);
        }
    }

    std::vector<std::string> errors_seen() {
        const std::lock_guard<std::mutex> lock(mutex);
        return errors;
    }

    WorkerOptions options;
    Pool<Driver> pool{"", {}};
    std::mutex mutex;
    std::vector<std::string> errors;
};

using Drivers = testing::Types<Pqxx, Libpq>;
TYPED_TEST_SUITE(Workers, Drivers);

TYPED_TEST(Workers, effects_commit_with_the_answer) {
    const auto key = this->queue();
    Due seen;
    auto worker =
        Worker<TypeParam>::transactional(this->pool, this->options, [&](auto& tx, const Due& due) {
            seen = due;
            this->pay()(tx, due);
            return Answer{201, {{"X", "1"}}, "paid"};
        });
    this->with(worker, [&] { this->wait_for(key, "completed"); });
    EXPECT_EQ(effects(key), 1);
    EXPECT_EQ(this->told(key), "completed 2 201");
    EXPECT_EQ(
        ask("SELECT convert_from(body, 'UTF8') || (headers->>'X') FROM idem_get($1, $2, 'me')",
            {key, this->options.scope}),
        "paid1");
    EXPECT_EQ(std::tie(seen.key, seen.scope, seen.principal, seen.attempt),
              std::make_tuple(key, this->options.scope, "me", 2));
    EXPECT_EQ(std::tie(seen.method, seen.path, seen.operation, seen.error),
              std::make_tuple("POST", "/hook", "", "first"));
    EXPECT_EQ(seen.request.at("to"), "shop");
    EXPECT_FALSE(seen.token.empty());
    EXPECT_TRUE(seen.recovery_point.empty());
    EXPECT_TRUE(seen.state.is_null());
}

TYPED_TEST(Workers, handler_that_returns_nothing_completes_without_a_status) {
    this->options.handler_timeout = Milliseconds::max();
    const auto key = this->queue(), leased = this->queue();
    auto worker = Worker<TypeParam>::transactional(this->pool, this->options, this->pay());
    this->with(worker, [&] {
        this->wait_for(key, "completed");
        this->wait_for(leased, "completed");
    });
    EXPECT_EQ(this->told(key), "completed 2");
    const auto other = this->queue();
    auto second = Worker<TypeParam>::leased(this->pool, this->options, [](auto claim, const Due&) {
        return std::move(claim).finish();
    });
    this->with(second, [&] { this->wait_for(other, "completed"); });
    EXPECT_EQ(this->told(other), "completed 2");
}

TYPED_TEST(Workers, exception_rolls_back_and_is_told) {
    const auto key = this->queue();
    auto worker =
        Worker<TypeParam>::transactional(this->pool, this->options, [&](auto& tx, const Due& due) {
            this->pay()(tx, due);
            if (due.attempt < 3) throw std::runtime_error("no route");
            EXPECT_EQ(due.error, "no route");
        });
    this->with(worker, [&] { this->wait_for(key, "completed"); });
    EXPECT_EQ(effects(key), 1);
    EXPECT_EQ(this->told(key), "completed 3");
    EXPECT_EQ(this->errors_seen(), std::vector<std::string>{"no route"});
}

TYPED_TEST(Workers, answer_that_is_not_kept_rolls_back) {
    const auto key = this->queue();
    auto worker =
        Worker<TypeParam>::transactional(this->pool, this->options, [&](auto& tx, const Due& due) {
            this->pay()(tx, due);
            return Answer{due.attempt < 3 ? 503 : 422, {}, ""};
        });
    this->with(worker, [&] { this->wait_for(key, "completed"); });
    EXPECT_EQ(effects(key), 1);
    EXPECT_EQ(this->told(key), "completed 3 422");
}

TYPED_TEST(Workers, rolled_back_work_is_repeated_under_any_policy_and_leased_work_is_not) {
    const auto fail = [](auto&&, const Due&) -> Answer { throw std::runtime_error("no"); };
    this->options.scope = unique("unsure");
    this->policy(", on_lease_expiry => 'unknown', max_attempts => 2");
    const auto first = this->queue();
    auto worker = Worker<TypeParam>::transactional(this->pool, this->options, fail);
    this->with(worker, [&] { this->wait_for(first, "exhausted"); });

    const auto second = this->queue();
    auto leased = Worker<TypeParam>::leased(
        this->pool, this->options,
        [&](auto, const Due&) -> Ended { throw std::runtime_error("no"); });
    this->with(leased, [&] { this->wait_for(second, "unknown"); });

    const auto third = this->queue();
    auto certain = Worker<TypeParam>::leased(
        this->pool, this->options, [&](auto, const Due&) -> Ended { throw NothingHappened("no"); });
    this->with(certain, [&] { this->wait_for(third, "exhausted"); });
}

TYPED_TEST(Workers, serialization_failure_is_no_failed_attempt) {
    const auto key = this->queue();
    int runs = 0;
    auto worker =
        Worker<TypeParam>::transactional(this->pool, this->options, [&](auto& tx, const Due& due) {
            this->pay()(tx, due);
            if (++runs < 3) TypeParam::run(tx, "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$", {});
        });
    this->with(worker, [&] { this->wait_for(key, "completed"); });
    EXPECT_EQ(this->told(key), "completed 2");
    EXPECT_EQ(effects(key), 1);
}

TYPED_TEST(Workers, hidden_error_is_a_failure) {
    const auto key = this->queue();
    auto worker =
        Worker<TypeParam>::transactional(this->pool, this->options, [&](auto& tx, const Due& due) {
            this->pay()(tx, due);
            if (due.attempt > 2) return;
            EXPECT_ANY_THROW(TypeParam::run(tx, "SELECT 1/0", {}));
        });
    this->with(worker, [&] { this->wait_for(key, "completed"); });
    EXPECT_EQ(this->told(key), "completed 3");
    EXPECT_EQ(effects(key), 1);
}

// Its number fits no number of C++.
TYPED_TEST(Workers, request_that_cannot_be_read_is_a_failure_of_its_own) {
    this->options.scope = unique("unread");
    this->policy(", on_lease_expiry => 'unknown', max_attempts => 2");
    const auto key = this->queue(R"({"n": 1e400})"), other = this->queue();
    this->options.size = 2;
    auto worker = Worker<TypeParam>::leased(this->pool, this->options, [](auto claim, const Due&) {
        return std::move(claim).finish();
    });
    this->with(worker, [&] {
        this->wait_for(key, "exhausted");
        this->wait_for(other, "completed");
    });
}

TYPED_TEST(Workers, state_of_an_earlier_attempt_arrives) {
    const auto key = this->queue();
    auto worker =
        Worker<TypeParam>::leased(this->pool, this->options, [](auto claim, const Due& due) {
            if (claim.recovery_point().empty()) {
                claim.step("charged", nlohmann::json{{"charge", 7}});
                throw std::runtime_error("no");
            }
            EXPECT_EQ(due.recovery_point, "charged");
            EXPECT_EQ(due.state, claim.state());
            EXPECT_EQ(due.state.at("charge"), 7);
            return std::move(claim).finish({200, {}, ""});
        });
    this->with(worker, [&] { this->wait_for(key, "completed"); });
}

TYPED_TEST(Workers, notification_ends_the_pause) {
    if (is_pooled()) GTEST_SKIP();
    this->options.poll = 1h;
    this->options.channel = unique("Channel \"with\" a quote");
    auto worker = Worker<TypeParam>::transactional(this->pool, this->options, this->pay());
    const auto queue_and_notify = [&] {
        const auto key = this->queue();
        ask("SELECT pg_notify($1, '')", {this->options.channel});
        this->wait_for(key, "completed");
    };
    const auto listeners = [&] {
        return ask(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE query = 'LISTEN \"' || replace($1, '\"', '\"\"') || '\"'",
            {this->options.channel});
    };
    const auto before = this->queue();
    this->with(worker, [&] {
        this->wait_for(before, "completed");
        queue_and_notify();
        queue_and_notify();
        EXPECT_EQ(listeners(), "1");
    });
}

TYPED_TEST(Workers, connection_that_listens_is_made_again) {
    if (is_pooled()) GTEST_SKIP();
    this->options.channel = unique("channel");
    std::atomic<int> heard{0};
    const auto awaited = [&](int count) {
        for (const auto end = Clock::now() + 60s; heard < count && Clock::now() < end;) {
            std::this_thread::sleep_for(5ms);
        }
        return heard >= count;
    };
    const Listener<TypeParam> listener(this->pool, this->options.channel, 1ms, [&] { ++heard; });
    EXPECT_TRUE(awaited(1));
    ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE query = 'LISTEN \"' || $1 || '\"'",
        {this->options.channel});
    EXPECT_TRUE(awaited(2));
    ask("SELECT pg_notify($1, '')", {this->options.channel});
    EXPECT_TRUE(awaited(3));
}

TYPED_TEST(Workers, stop_leaves_no_claim) {
    this->options.size = 2;
    std::vector<std::string> keys;
    for (int i = 0; i < 5; ++i) keys.push_back(this->queue());
    std::promise<void> both, go;
    std::atomic<int> begun{0};
    const auto gate = go.get_future().share();
    auto worker =
        Worker<TypeParam>::transactional(this->pool, this->options, [&](auto& tx, const Due& due) {
            if (++begun == 2) both.set_value();
            gate.wait();
            EXPECT_FALSE(due.lost());
            this->pay()(tx, due);
        });
    this->with(worker, [&] {
        both.get_future().wait();
        worker.stop();
        worker.stop();
        go.set_value();
    });
    EXPECT_EQ(begun, 2);
    std::map<std::string, int> found;
    for (const auto& key : keys) ++found[status(key, this->options.scope)];
    EXPECT_EQ(found, (std::map<std::string, int>{{"completed", 2}, {"retryable", 3}}));
    worker.run();
    EXPECT_EQ(begun, 2);
}

TYPED_TEST(Workers, handlers_are_told_of_an_abort_and_their_claims_end) {
    const auto rolled_back = this->queue();
    std::promise<void> begun;
    auto worker =
        Worker<TypeParam>::transactional(this->pool, this->options, [&](auto& tx, const Due& due) {
            this->pay()(tx, due);
            begun.set_value();
            EXPECT_TRUE(due.wait_for_loss(60s));
            throw std::runtime_error("told");
        });
    this->with(worker, [&] {
        begun.get_future().wait();
        worker.abort();
    });
    EXPECT_EQ(this->told(rolled_back), "retryable 2 told");
    EXPECT_EQ(effects(rolled_back), 0);
    ask("SELECT idem_forget($1, $2, 'me')", {rolled_back, this->options.scope});

    const auto finished = this->queue();
    begun = {};
    auto leased =
        Worker<TypeParam>::leased(this->pool, this->options, [&](auto claim, const Due& due) {
            begun.set_value();
            EXPECT_TRUE(claim.wait_for_loss(60s));
            EXPECT_TRUE(due.lost());
            EXPECT_THROW(claim.step("next", nlohmann::json()), ClaimLost);
            return std::move(claim).finish();
        });
    this->with(leased, [&] {
        begun.get_future().wait();
        leased.abort();
    });
    EXPECT_EQ(this->told(finished), "completed 2");
}

TYPED_TEST(Workers, lost_claim_completes_nothing) {
    const auto key = this->queue();
    this->options.lease = 3s;
    auto worker = Worker<
        TypeParam>::transactional(this->pool, this->options, [&](auto& tx, const Due& due) {
        this->pay()(tx, due);
        ask("SELECT idem_resolve($1, 'fail', $2, 'me', error => 'by hand')", {due.key, due.scope});
        EXPECT_TRUE(due.wait_for_loss(60s));
    });
    this->with(worker, [&] { this->wait_for_errors(1); });
    EXPECT_EQ(effects(key), 0);
    EXPECT_EQ(this->told(key), "failed 2 by hand");
    EXPECT_EQ(this->errors_seen().at(0), ClaimLost().what());
}

TYPED_TEST(Workers, mistake_at_the_first_question_ends_it) {
    if (is_pooled()) GTEST_SKIP();
    Pool<TypeParam> elsewhere("options=-csearch_path=nowhere", {});
    auto worker = Worker<TypeParam>::transactional(elsewhere, this->options, this->pay());
    try {
        worker.run();
        FAIL();
    } catch (const std::exception& error) {
        EXPECT_EQ(failure_of<TypeParam>(error).sqlstate, "42883");
    }
}

TYPED_TEST(Workers, mistake_later_does_not) {
    const auto first = this->queue();
    auto worker = Worker<TypeParam>::transactional(this->pool, this->options, this->pay());
    this->with(worker, [&] {
        this->wait_for(first, "completed");
        ask("ALTER FUNCTION idem_claim_due RENAME TO away");
        this->wait_for_errors(1);
        ask("ALTER FUNCTION away RENAME TO idem_claim_due");
        this->wait_for(this->queue(), "completed");
    });
}

TYPED_TEST(Workers, outage_does_not_end_it) {
    Pool<TypeParam> nowhere("host=127.0.0.1 port=1", {});
    auto worker = Worker<TypeParam>::transactional(nowhere, this->options, this->pay());
    this->with(worker, [&] { this->wait_for_errors(3); });
}

TYPED_TEST(Workers, signal_stops_it_and_a_second_one_aborts) {
    const auto key = this->queue();
    auto worker = Worker<TypeParam>::leased(this->pool, this->options, [&](auto claim, const Due&) {
        EXPECT_FALSE(claim.lost());
        kill(getpid(), SIGUSR1);
        EXPECT_FALSE(claim.wait_for_loss(100ms));
        kill(getpid(), SIGUSR2);
        EXPECT_TRUE(claim.wait_for_loss(60s));
        return std::move(claim).finish();
    });
    worker.run_until({SIGUSR1, SIGUSR2});
    EXPECT_EQ(this->told(key), "completed 2");
}

TYPED_TEST(Workers, bad_options_are_refused) {
    const auto refused = [&](const auto& change) {
        auto wrong = this->options;
        change(wrong);
        EXPECT_THROW(Worker<TypeParam>::transactional(this->pool, wrong, this->pay()),
                     std::invalid_argument);
    };
    refused([](auto& wrong) { wrong.size = 0; });
    refused([](auto& wrong) { wrong.size = 1001; });
    refused([](auto& wrong) { wrong.size = PoolOptions().size; });
    refused([](auto& wrong) { wrong.lease = 0ms; });
    refused([](auto& wrong) { wrong.poll = 0ms; });
}

// The program of README.md.
TEST(Readme, worker_ships_an_order_and_ends_with_a_signal) {
    prepare_database();
    ask("CREATE TABLE IF NOT EXISTS shipment (order_key text, item text)");
    ask("SELECT idem_policy_drop('orders')");
    ask("SELECT idem_policy_set('orders', store_request => true)");
    char program[] = README_WORKER;
    char* const arguments[] = {program, nullptr};
    pid_t worker = 0;
    ASSERT_EQ(posix_spawn(&worker, program, nullptr, nullptr, arguments, environ), 0);
    const auto key = unique("order");
    ask("SELECT idem_begin($1, '{\"item\": \"book\"}', scope => 'orders', lease => '1 ms')", {key});
    for (const auto end = Clock::now() + 60s; Clock::now() < end;) {
        ask("NOTIFY orders");
        if (ask("SELECT status FROM idem_get($1, 'orders')", {key}) == "completed") break;
        std::this_thread::sleep_for(10ms);
    }
    EXPECT_EQ(ask("SELECT item FROM shipment WHERE order_key = $1", {key}), "book");
    kill(worker, SIGTERM);
    int ended = 0;
    ASSERT_EQ(waitpid(worker, &ended, 0), worker);
    EXPECT_TRUE(WIFEXITED(ended)) << ended;
    EXPECT_EQ(WEXITSTATUS(ended), 0);
}

}  // namespace
}  // namespace idempotency
