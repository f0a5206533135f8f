// Claims on a real server, with both drivers.
#include <cstring>
#include <idempotency/transactionally.hpp>

#include "support.hpp"

namespace idempotency {
namespace {

template <typename Driver>
class Claims : public testing::Test {
  protected:
    using Transaction = typename Driver::Transaction;

    static void SetUpTestSuite() { prepare_database(); }

    auto run(const std::function<Answer(Transaction&)>& work, const std::string& request = "{}") {
        return transactionally(pool, call_for(key, request), rules,
                               [&](Transaction& tx, const Decision&) { return work(tx); });
    }

    auto lease(const std::function<Ended(LeasedClaim<Driver>)>& work,
               Milliseconds duration = Milliseconds(30000)) {
        Call call = call_for(key);
        call.lease = duration;
        return leased(pool, call, rules, work);
    }

    Answer pay(Transaction& tx) {
        Driver::run(tx, kEffect, {key});
        return {201, {{"X", "1"}}, std::string("p\0id", 4)};
    }

    Rules rules;
    Pool<Driver> pool{"", {}};
    std::string key = unique("key");
};

using Drivers = testing::Types<Pqxx, Libpq>;
TYPED_TEST_SUITE(Claims, Drivers);

TYPED_TEST(Claims, work_is_done_once_and_its_answer_kept) {
    this->rules.handler_timeout = Milliseconds::max();
    auto [first, answer] = this->run([&](auto& tx) { return this->pay(tx); });
    EXPECT_TRUE(first.execute());
    ASSERT_TRUE(answer);
    const auto [again, none] = this->run([&](auto& tx) { return this->pay(tx); });
    EXPECT_EQ(again.outcome, "replay");
    EXPECT_FALSE(none);
    EXPECT_EQ(again.status_code, 201);
    EXPECT_EQ(again.body, answer->body);
    EXPECT_EQ(fields_of(again.headers), answer->headers);
    EXPECT_EQ(effects(this->key), 1);
    EXPECT_EQ(this->run([&](auto& tx) { return this->pay(tx); }, "[1]").first.outcome, "mismatch");
}

TYPED_TEST(Claims, answer_that_is_not_kept_rolls_back) {
    const auto fail = [&](auto& tx) {
        this->pay(tx);
        return Answer{503, {}, ""};
    };
    EXPECT_EQ(this->run(fail).second->status, 503);
    EXPECT_EQ(effects(this->key), 0);
    EXPECT_EQ(status(this->key), "");
    EXPECT_TRUE(this->run([&](auto& tx) { return this->pay(tx); }).first.execute());
}

TYPED_TEST(Claims, exception_rolls_back_and_comes_out) {
    const auto fail = [&](auto& tx) -> Answer {
        this->pay(tx);
        throw std::domain_error("no");
    };
    EXPECT_THROW(this->run(fail), std::domain_error);
    EXPECT_EQ(effects(this->key), 0);
    EXPECT_EQ(status(this->key), "");
}

TYPED_TEST(Claims, serialization_failure_runs_the_work_again) {
    int runs = 0;
    const auto work = [&](auto& tx) {
        auto answer = this->pay(tx);
        if (++runs < 3) TypeParam::run(tx, "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$", {});
        return answer;
    };
    EXPECT_EQ(this->run(work).second->status, 201);
    EXPECT_EQ(runs, 3);
    EXPECT_EQ(effects(this->key), 1);
}

TYPED_TEST(Claims, serialization_failures_have_an_end) {
    int runs = 0;
    this->rules.attempts = 2;
    const auto work = [&](auto& tx) -> Answer {
        ++runs;
        TypeParam::run(tx, "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$", {});
        return {};
    };
    EXPECT_ANY_THROW(this->run(work));
    EXPECT_EQ(runs, 2);
}

TYPED_TEST(Claims, lost_connection_runs_the_work_again) {
    int runs = 0;
    const auto work = [&](auto& tx) {
        auto answer = this->pay(tx);
        if (++runs == 1) TypeParam::run(tx, "SELECT pg_terminate_backend(pg_backend_pid())", {});
        return answer;
    };
    EXPECT_EQ(this->run(work).second->status, 201);
    EXPECT_EQ(runs, 2);
    EXPECT_EQ(effects(this->key), 1);
}

// Each run would take as long.
TYPED_TEST(Claims, session_that_times_out_in_its_transaction_is_no_reason_to_run_again) {
    for (const bool goes_on : {false, true}) {
        this->key = unique("idle");
        int runs = 0;
        const auto work = [&](auto& tx) {
            ++runs;
            auto answer = this->pay(tx);
            TypeParam::run(tx, "SET LOCAL idle_in_transaction_session_timeout = 100", {});
            std::this_thread::sleep_for(Milliseconds(400));
            if (goes_on) this->pay(tx);
            return answer;
        };
        try {
            this->run(work);
            ADD_FAILURE() << "it commits";
        } catch (const std::exception& error) {
            EXPECT_EQ(failure_of<TypeParam>(error).sqlstate, "25P03");
        }
        EXPECT_EQ(runs, 1);
        EXPECT_EQ(effects(this->key), 0);
    }
}

TYPED_TEST(Claims, silent_database_is_given_up) {
    PoolOptions options;
    options.longest_loan = Milliseconds(200);
    Pool<TypeParam> pool("", options);
    try {
        const auto loan = pool.lend();
        typename TypeParam::Transaction tx(**loan);
        TypeParam::run(tx, "SELECT pg_sleep(30)", {});
        FAIL() << "it was waited for";
    } catch (const std::exception& error) {
        EXPECT_TRUE(failure_of<TypeParam>(error).is_connection());
    }
}

TYPED_TEST(Claims, verdict_decides_before_the_status) {
    std::optional<Verdict> said;
    this->rules.verdict = [&](const Answer&) { return said; };
    const auto run = [&](std::optional<Verdict> verdict, int number) {
        said = verdict;
        this->key = unique("verdict");
        return this->run([&](auto& tx) { return Answer{number, {}, this->pay(tx).body}; });
    };
    EXPECT_EQ(run(Verdict::Keep, 503).second->status, 503);
    EXPECT_EQ(status(this->key), "completed");
    EXPECT_EQ(run(Verdict::Free, 200).second->status, 200);
    EXPECT_EQ(status(this->key), "");
    EXPECT_EQ(effects(this->key), 0);
    EXPECT_EQ(run(Verdict::Unknown, 202).second->status, 202);
    EXPECT_EQ(status(this->key), "unknown");
    EXPECT_EQ(effects(this->key), 1);
    run(std::nullopt, 503);
    EXPECT_EQ(status(this->key), "");
}

TYPED_TEST(Claims, verdict_of_a_last_step_decides_about_its_effects) {
    Verdict said{};
    this->rules.verdict = [&](const Answer&) { return said; };
    const auto run = [&](Verdict verdict) {
        said = verdict;
        this->key = unique("verdict");
        return this->lease([&](LeasedClaim<TypeParam> claim) {
            return std::move(claim).finish([&](auto& tx) { return this->pay(tx); });
        });
    };
    run(Verdict::Unknown);
    EXPECT_EQ(status(this->key), "unknown");
    EXPECT_EQ(effects(this->key), 1);
    run(Verdict::Free);
    EXPECT_EQ(status(this->key), "retryable");
    EXPECT_EQ(effects(this->key), 0);
}

TYPED_TEST(Claims, late_work_in_the_database_is_cancelled) {
    this->rules.handler_timeout = Milliseconds(300);
    int runs = 0;
    EXPECT_THROW(this->run([&](auto& tx) {
        ++runs;
        this->pay(tx);
        TypeParam::run(tx, "SELECT pg_sleep(60)", {});
        return Answer{};
    }),
                 HandlerLate);
    EXPECT_EQ(runs, 1);
    EXPECT_EQ(effects(this->key), 0);
    this->rules.handler_timeout = Rules().handler_timeout;
    EXPECT_EQ(this->run([&](auto& tx) { return this->pay(tx); }).second->status, 201);
}

TYPED_TEST(Claims, late_work_elsewhere_has_no_transaction_any_more) {
    this->rules.handler_timeout = Milliseconds(300);
    EXPECT_THROW(this->run([&](auto& tx) {
        auto answer = this->pay(tx);
        const auto tried = [&] {
            return *ask(
                "SELECT outcome FROM idem_begin($1, '{}', method => 'POST',"
                " path => '/test', scope => 'test', principal => 'me')",
                {this->key});
        };
        while (tried() == "in_progress") std::this_thread::sleep_for(Milliseconds(20));
        return answer;
    }),
                 HandlerLate);
    EXPECT_EQ(effects(this->key), 0);
}

// The watchdog is a thread, which may get a processor later than the work.
struct Unwatched {
    static Watchdog::Guard give_up_after(Milliseconds) { return {}; }
    static bool late() { return false; }
};

TEST(InTime, work_that_ends_after_its_time_is_late_even_if_no_watchdog_has_looked) {
    Rules rules;
    rules.handler_timeout = Milliseconds(10);
    for (const bool throws : {false, true}) {
        const auto work = [&] {
            std::this_thread::sleep_for(Milliseconds(20));
            if (throws) throw std::runtime_error("of no account");
            return Answer{};
        };
        Unwatched loan;
        EXPECT_THROW((void)detail::in_time(loan, rules, work), HandlerLate);
    }
}

TYPED_TEST(Claims, answer_that_is_too_large_is_an_error_or_left_out) {
    this->rules.max_answer_bytes = 3;
    EXPECT_THROW(this->run([&](auto& tx) { return this->pay(tx); }), AnswerTooLarge);
    EXPECT_EQ(effects(this->key), 0);
    this->rules.omit_large_answers = true;
    EXPECT_EQ(this->run([&](auto& tx) { return this->pay(tx); }).second->body.size(), 4U);
    const auto again = this->run([&](auto& tx) { return this->pay(tx); }).first;
    const Fields marked = {{"Idempotent-Body", "omitted"}};
    EXPECT_EQ(fields_of(again.headers), marked);
    EXPECT_EQ(again.body, "");
}

TYPED_TEST(Claims, message_is_handled_once) {
    const auto loan = this->pool.lend();
    for (const bool first : {true, false}) {
        typename TypeParam::Transaction tx(**loan);
        EXPECT_EQ(once(tx, this->key, "messages"), first);
        tx.commit();
    }
}

// ---- leased ----

TYPED_TEST(Claims, leased_work_goes_on_from_its_recovery_point) {
    this->rules.handler_timeout = Milliseconds::max();
    int steps = 0;
    const auto work = [&](bool whole) {
        return [&, whole](LeasedClaim<TypeParam> claim) {
            if (claim.recovery_point().empty()) {
                claim.step("done", [&](auto& tx) {
                    ++steps;
                    this->pay(tx);
                    return nlohmann::json{{"charge", "ch_1"}};
                });
            }
            EXPECT_EQ(claim.state().at("charge"), "ch_1");
            if (!whole) return std::move(claim).finish(Answer{502, {}, ""});
            return std::move(claim).finish([&](auto&) { return Answer{201, {}, "ok"}; });
        };
    };
    EXPECT_EQ(this->lease(work(false)).second->status, 502);
    EXPECT_EQ(status(this->key), "retryable");
    ask("UPDATE idempotency.record SET next_attempt_at = now() - interval '1 s' WHERE key = $1",
        {this->key});
    const auto [decision, answer] = this->lease(work(true));
    EXPECT_EQ(decision.attempt, 2);
    EXPECT_EQ(answer->body, "ok");
    EXPECT_EQ(steps, 1);
    EXPECT_EQ(effects(this->key), 1);
    EXPECT_EQ(status(this->key), "completed");
}

TYPED_TEST(Claims, step_without_effects_is_noted) {
    const auto work = [&](LeasedClaim<TypeParam> claim) {
        claim.step("asked", nlohmann::json{{"charge", "ch_1"}});
        EXPECT_EQ(claim.recovery_point(), "asked");
        EXPECT_EQ(ask("SELECT state->>'charge' FROM idem_get($1, 'test', 'me')", {this->key}),
                  "ch_1");
        return std::move(claim).finish(Answer{201, {}, "ok"});
    };
    EXPECT_EQ(this->lease(work).second->status, 201);
}

TYPED_TEST(Claims, refusal_is_kept_without_the_work) {
    const auto refuse = [&](auto& tx) -> Answer {
        this->pay(tx);
        throw Refusal({409, {{"X", "1"}}, "no"});
    };
    const auto [first, answer] = this->run(refuse);
    EXPECT_TRUE(first.execute());
    EXPECT_EQ(answer->body, "no");
    EXPECT_EQ(effects(this->key), 0);
    const auto again = this->run(refuse).first;
    EXPECT_EQ(again.outcome, "replay");
    EXPECT_EQ(again.status_code, 409);
    EXPECT_EQ(again.body, "no");
    this->key = unique("later");
    const auto later = [](auto&) -> Answer { throw Refusal({429, {}, ""}); };
    EXPECT_THROW(this->run(later), Refusal);
    EXPECT_EQ(status(this->key), "");
}

TYPED_TEST(Claims, refusal_of_leased_work_is_its_answer) {
    const auto refuse = [](LeasedClaim<TypeParam>) -> Ended { throw Refusal({422, {}, "no"}); };
    EXPECT_EQ(this->lease(refuse).second->status, 422);
    EXPECT_EQ(this->lease(refuse).first.status_code, 422);
    this->key = unique("later");
    const auto fail = [](LeasedClaim<TypeParam>) -> Ended { throw Refusal({503, {}, "no"}); };
    EXPECT_THROW(this->lease(fail), Refusal);
    EXPECT_EQ(status(this->key), "retryable");
}

TYPED_TEST(Claims, leased_work_that_throws_may_be_tried_again) {
    const auto fail = [](LeasedClaim<TypeParam>) -> Ended { throw std::domain_error("no"); };
    EXPECT_THROW(this->lease(fail), std::domain_error);
    EXPECT_EQ(status(this->key), "retryable");
}

TYPED_TEST(Claims, claim_that_has_ended_is_of_no_use) {
    const auto work = [](LeasedClaim<TypeParam> claim) {
        auto ended = std::move(claim).finish(Answer{200, {}, ""});
        EXPECT_THROW((void)std::move(claim).finish(Answer{201, {}, ""}), std::logic_error);
        EXPECT_THROW(claim.step("x", [](auto&) { return nlohmann::json(); }), std::logic_error);
        return ended;
    };
    EXPECT_EQ(this->lease(work).second->status, 200);
    EXPECT_EQ(status(this->key), "completed");
}

TYPED_TEST(Claims, last_step_that_fails_to_serialize_is_done_again) {
    int runs = 0;
    const auto work = [&](LeasedClaim<TypeParam> claim) {
        return std::move(claim).finish([&](auto& tx) {
            auto answer = this->pay(tx);
            if (++runs < 3) TypeParam::run(tx, "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$", {});
            return answer;
        });
    };
    EXPECT_EQ(this->lease(work).second->status, 201);
    EXPECT_EQ(effects(this->key), 1);
}

TYPED_TEST(Claims, lease_is_lost_when_somebody_else_has_decided) {
    const auto work = [&](LeasedClaim<TypeParam> claim) {
        EXPECT_FALSE(claim.lost());
        ask("SELECT idem_resolve($1, 'release', 'test', 'me', even_if_running => true)",
            {this->key});
        EXPECT_TRUE(claim.wait_for_loss(std::chrono::seconds(60)));
        return std::move(claim).finish(Answer{200, {}, ""});
    };
    EXPECT_THROW(this->lease(work, Milliseconds(2000)), ClaimLost);
    EXPECT_EQ(status(this->key), "retryable");
}

// ---- outcomes that are not known ----

template <typename Driver>
class Unsure : public Claims<Driver> {
  protected:
    auto lease(const std::function<Ended(LeasedClaim<Driver>)>& work) {
        Call call = call_for(this->key);
        call.scope = "unsure";
        return leased(this->pool, call, this->rules, work);
    }

    std::string recorded() { return status(this->key, "unsure"); }

    std::string repeated() {
        const auto never = [](LeasedClaim<Driver> claim) {
            ADD_FAILURE() << "it runs again";
            return std::move(claim).finish(Answer{});
        };
        return lease(never).first.outcome;
    }
};

TYPED_TEST_SUITE(Unsure, Drivers);

TYPED_TEST(Unsure, exception_leaves_the_outcome_unknown) {
    const auto fail = [](LeasedClaim<TypeParam>) -> Ended { throw std::domain_error("no"); };
    EXPECT_THROW(this->lease(fail), std::domain_error);
    EXPECT_EQ(this->recorded(), "unknown");
    EXPECT_EQ(this->repeated(), "unknown");
}

TYPED_TEST(Unsure, answer_that_is_not_kept_leaves_the_outcome_unknown) {
    const auto work = [](LeasedClaim<TypeParam> claim) {
        return std::move(claim).finish(Answer{502, {}, ""});
    };
    EXPECT_EQ(this->lease(work).second->status, 502);
    EXPECT_EQ(this->repeated(), "unknown");
}

TYPED_TEST(Unsure, work_that_gives_up_leaves_the_outcome_unknown) {
    const auto work = [](LeasedClaim<TypeParam> claim) {
        return std::move(claim).fail("no", Answer{503, {}, ""});
    };
    EXPECT_EQ(this->lease(work).second->status, 503);
    EXPECT_EQ(this->repeated(), "unknown");
}

TYPED_TEST(Unsure, late_work_leaves_the_outcome_unknown_at_once) {
    this->rules.handler_timeout = Milliseconds(300);
    const auto work = [&](LeasedClaim<TypeParam> claim) {
        EXPECT_TRUE(claim.wait_for_loss(std::chrono::seconds(60)));
        EXPECT_EQ(status(this->key, "unsure"), "unknown");
        return std::move(claim).finish(Answer{201, {}, ""});
    };
    EXPECT_THROW(this->lease(work), HandlerLate);
    EXPECT_EQ(status(this->key, "unsure"), "unknown");
}

TYPED_TEST(Unsure, nothing_happened_is_executed_again) {
    const auto give_up = [](LeasedClaim<TypeParam> claim) {
        return std::move(claim).nothing_happened("refused", Answer{503, {}, ""});
    };
    EXPECT_EQ(this->lease(give_up).second->status, 503);
    EXPECT_EQ(this->recorded(), "retryable");
    ask("SELECT idem_resolve($1, 'release', 'unsure', 'me', even_if_running => true)", {this->key});
    const auto fail = [](LeasedClaim<TypeParam>) -> Ended { throw NothingHappened("refused"); };
    EXPECT_THROW(this->lease(fail), NothingHappened);
    EXPECT_EQ(this->recorded(), "retryable");
    EXPECT_EQ(ask("SELECT error FROM idem_get($1, 'unsure', 'me')", {this->key}), "refused");
}

TYPED_TEST(Unsure, work_can_say_that_its_outcome_is_unknown) {
    const auto work = [](LeasedClaim<TypeParam> claim) {
        auto ended = std::move(claim).unknown("no answer", "ch_1", Answer{202, {}, "we will see"});
        EXPECT_THROW((void)std::move(claim).finish(Answer{201, {}, ""}), std::logic_error);
        return ended;
    };
    EXPECT_EQ(this->lease(work).second->status, 202);
    EXPECT_EQ(
        ask("SELECT error || ' ' || reference FROM idem_get($1, 'unsure', 'me')", {this->key}),
        "no answer ch_1");
    EXPECT_EQ(this->repeated(), "unknown");
}

TYPED_TEST(Unsure, exception_after_the_end_changes_nothing) {
    const auto work = [](LeasedClaim<TypeParam> claim) -> Ended {
        (void)std::move(claim).unknown("no answer", std::nullopt, Answer{});
        throw NothingHappened("a contradiction");
    };
    EXPECT_THROW(this->lease(work), NothingHappened);
    EXPECT_EQ(this->repeated(), "unknown");
}

TYPED_TEST(Unsure, lost_claim_has_no_unknown_outcome) {
    const auto work = [&](LeasedClaim<TypeParam> claim) {
        ask("SELECT idem_resolve($1, 'complete', 'unsure', 'me')", {this->key});
        return std::move(claim).unknown("no answer", std::nullopt, Answer{});
    };
    EXPECT_THROW(this->lease(work), ClaimLost);
    EXPECT_EQ(this->recorded(), "completed");
}

// ---- requests without a key, and without a place in jsonb ----

TYPED_TEST(Claims, derived_key_is_forgotten_with_its_window) {
    Call call = call_for("", "\"" + this->key + "\"");
    call.key.reset();
    call.scope = "window";
    call.derive = std::chrono::hours(1);
    const auto pay = [&](auto& tx, const Decision&) { return this->pay(tx); };
    const auto first = transactionally(this->pool, call, this->rules, pay).first;
    EXPECT_TRUE(first.execute());
    EXPECT_EQ(first.claim.key.size(), 64U);
    const auto again = transactionally(this->pool, call, this->rules, pay).first;
    EXPECT_EQ(again.outcome, "replay");
    EXPECT_EQ(again.claim.key, first.claim.key);
    ask("UPDATE idempotency.record SET created_at = created_at - interval '1 hour',"
        " claimed_at = claimed_at - interval '1 hour', finished_at = finished_at - interval '1 "
        "hour',"
        " expires_at = expires_at - interval '1 hour',"
        " retained_until = retained_until - interval '1 hour' WHERE key = $1",
        {first.claim.key});
    EXPECT_TRUE(transactionally(this->pool, call, this->rules, pay).first.execute());
}

TYPED_TEST(Claims, derived_key_counts_for_all_of_its_window) {
    Call call = call_for("", "\"" + this->key + "\"");
    call.key.reset();
    call.derive = std::chrono::hours(7 * 24);
    const auto pay = [&](auto& tx, const Decision&) { return this->pay(tx); };
    const auto first = transactionally(this->pool, call, this->rules, pay).first;
    EXPECT_EQ(ask("SELECT expires_at > now() + interval '6 days' FROM idem_get($1, 'test', 'me')",
                  {first.claim.key}),
              "t");
}

TYPED_TEST(Claims, leased_work_ends_under_its_derived_key) {
    Call call = call_for("", "\"" + this->key + "\"");
    call.key.reset();
    call.derive = std::chrono::hours(1);
    const auto work = [](LeasedClaim<TypeParam> claim) {
        return std::move(claim).finish(Answer{201, {}, claim.key()});
    };
    const auto answer = leased(this->pool, call, this->rules, work).second;
    ASSERT_TRUE(answer);
    EXPECT_EQ(leased(this->pool, call, this->rules, work).first.body, answer->body);
}

TYPED_TEST(Claims, window_of_a_derived_key_survives_a_second_run) {
    Call call = call_for("", "\"" + this->key + "\"");
    call.key.reset();
    call.derive = std::chrono::hours(1);
    int runs = 0;
    const auto work = [&](auto& tx, const Decision&) {
        auto answer = this->pay(tx);
        if (++runs < 2) TypeParam::run(tx, "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$", {});
        return answer;
    };
    const auto [first, answer] = transactionally(this->pool, call, this->rules, work);
    ASSERT_TRUE(answer);
    EXPECT_EQ(transactionally(this->pool, call, this->rules, work).first.outcome, "replay");
    EXPECT_EQ(runs, 2);
    EXPECT_EQ(ask("SELECT expires_at <= created_at + interval '1 hour'"
                  " FROM idem_get($1, 'test', 'me')",
                  {first.claim.key}),
              "t");
}

TYPED_TEST(Claims, request_that_jsonb_refuses_is_compared_as_bytes) {
    const auto pay = [&](auto& tx) { return this->pay(tx); };
    for (const std::string odd : kNulOrTooLarge) {
        this->key = unique("odd");
        EXPECT_TRUE(this->run(pay, odd).first.execute()) << odd;
        EXPECT_EQ(this->run(pay, odd).first.outcome, "replay") << odd;
        EXPECT_EQ(this->run(pay, odd + ' ').first.outcome, "mismatch") << odd;
        Call call = call_for(unique("odd"), odd);
        const auto work = [](LeasedClaim<TypeParam> claim) {
            return std::move(claim).finish(Answer{201, {}, ""});
        };
        EXPECT_TRUE(leased(this->pool, call, this->rules, work).first.execute()) << odd;
        EXPECT_EQ(leased(this->pool, call, this->rules, work).first.outcome, "replay") << odd;
    }
}

TYPED_TEST(Claims, error_of_the_work_says_nothing_about_the_request) {
    int runs = 0;
    const auto fail = [&](auto& tx) -> Answer {
        ++runs;
        TypeParam::run(tx, "SELECT '1e200000'::numeric", {});
        return {};
    };
    EXPECT_ANY_THROW(this->run(fail));
    EXPECT_EQ(runs, 1);
}

// ---- beats that are lost ----

// Drops some beats, as a network does.
struct Dropping : Pqxx {
    inline static std::atomic<int> beats{0}, passed{0};
    inline static std::atomic<int> every{1};  // one in so many passes; 0: none

    static Row run_alone(Connection& connection, const char* statement, const Values& values) {
        if (std::strstr(statement, "idem_extend") == nullptr) {
            return Pqxx::run_alone(connection, statement, values);
        }
        const int number = ++beats;
        if (every == 0 || number % every != 0) throw pqxx::broken_connection("dropped");
        auto row = Pqxx::run_alone(connection, statement, values);
        ++passed;
        return row;
    }
};

class Beats : public Claims<Dropping> {
  protected:
    void SetUp() override { Dropping::beats = Dropping::passed = 0; }
};

TEST_F(Beats, of_which_every_other_one_is_lost_keep_the_lease) {
    Dropping::every = 2;
    const auto work = [&](LeasedClaim<Dropping> claim) {
        while (Dropping::passed < 4 && !claim.wait_for_loss(Milliseconds(5))) {
        }
        EXPECT_FALSE(claim.lost());
        EXPECT_EQ(
            ask("SELECT outcome FROM idem_begin($1, scope => 'test', principal => 'me')", {key}),
            "in_progress");
        return std::move(claim).finish(Answer{200, {}, ""});
    };
    EXPECT_EQ(lease(work, Milliseconds(3000)).first.attempt, 1);
    EXPECT_GE(Dropping::beats, 8);
}

TEST_F(Beats, that_are_all_lost_lose_the_lease_when_it_may_have_ended) {
    Dropping::every = 0;
    std::atomic<int> told{0};
    const auto begun = Clock::now();
    Call call = call_for(key);
    call.lease = Milliseconds(1000);
    const auto work = [&](LeasedClaim<Dropping> claim) {
        EXPECT_TRUE(claim.wait_for_loss(std::chrono::seconds(60)));
        EXPECT_GE(Clock::now() - begun, Milliseconds(1000));
        EXPECT_GE(Dropping::beats, 3) << "it tries again";
        while (told == 0) std::this_thread::yield();
        return std::move(claim).finish(Answer{200, {}, ""});
    };
    EXPECT_THROW((void)leased(pool, call, rules, work, {}, [&](const Decision&) { ++told; }),
                 ClaimLost);
    EXPECT_EQ(told, 1);
    EXPECT_NE(status(key), "completed");
}

}  // namespace
}  // namespace idempotency
