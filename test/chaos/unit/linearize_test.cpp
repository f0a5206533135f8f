// The search for an order where many calls were never answered: it must find an existing order,
// must know when there is none, and must not confuse the two.
#include "check/linearize.hpp"

#include <random>

#include "story.hpp"

namespace idem::chaos {
namespace {

constexpr int kUnanswered = 30;

Verdict verdict_of(const History& history) {
    const std::vector<Timeline> keys = timelines(history);
    return linearize(keys.front(), history.scopes.at(keys.front().key.scope), {Record{}});
}

// A key and its callers. Calls overlap, each has its effect at one moment, and half of them are
// never answered: of these half have no effect.
class Crowd {
  public:
    explicit Crowd(unsigned seed) : random_(seed) {
        history_.scopes["s"] = Rules{3600 * kSecond, 3600 * kSecond, 10 * kSecond, 0, false};
    }

    History& history() { return history_; }

    // Claims that are taken over, given back or to be tried again; the key never gets an answer.
    void claim() {
        while (unanswered_ < kUnanswered) {
            if (below(4) == 0) {
                add(Function::Get);
            } else if (claim_.kind == Kind::InProgress && claim_.token != 0 && below(2) == 0) {
                add(below(2) == 0 ? Function::Release : Function::Fail);
            } else {
                add(Function::Begin);
            }
        }
    }

    // One of many equal calls, which may differ by their bodies.
    void execute(bool own_bodies) {
        while (unanswered_ < kUnanswered || claim_.kind != Kind::Completed)
            add(Function::Execute, own_bodies ? "body " + std::to_string(below(1000)) : "body");
    }

    // When only unanswered calls are under way.
    Call& later(Function function) {
        now_ += 60 * kSecond;
        return add(function, "late", true);
    }

  private:
    int below(int limit) {
        return static_cast<int>(random_() % static_cast<std::mt19937::result_type>(limit));
    }

    Call& add(Function function, const std::string& body = "", bool surely_answered = false) {
        now_ += (1 + below(400)) * kMillisecond;
        Call call;
        call.transaction = static_cast<std::int64_t>(history_.calls.size()) + 1;
        call.alone = true;
        call.function = function;
        call.key = {"s", "", "k"};
        call.asked.body = body;
        call.invoked = now_ - below(3000) * kMillisecond;
        call.returned = now_ + (1 + below(2000)) * kMillisecond;
        if (surely_answered) {
            call.invoked = now_;
            act(&call);
        } else if (below(2) == 0) {
            act(&call);
        } else {
            stay_silent(&call);
        }
        history_.calls.push_back(call);
        return history_.calls.back();
    }

    void stay_silent(Call* call) {
        Call answered = *call;
        if (below(2) == 0) act(&answered);
        claim_.token = 0;  // no client was told
        call->asked = answered.asked;
        call->result = Result::Info;
        call->returned = kNever;
        ++unanswered_;
    }

    void act(Call* call) {
        switch (call->function) {
            case Function::Get:
                return show(call);
            case Function::Release:
                return end(call, claim_.attempt > 1 ? Kind::Retryable : Kind::Absent, 1);
            case Function::Fail:
                call->asked.retryable = true;
                call->asked.retry_after = 0;
                return end(call, Kind::Retryable, 0);
            default:
                return grant(call);
        }
    }

    void end(Call* call, Kind kind, int attempts) {
        call->asked.token = claim_.token;
        call->answer.yes = true;
        claim_.kind = kind;
        claim_.attempt -= attempts;
    }

    void grant(Call* call) {
        const bool busy = claim_.kind == Kind::InProgress && now_ < claim_.lease_until.lo;
        call->answer.outcome = busy ? "in_progress" : "execute";
        if (claim_.kind == Kind::Completed) call->answer.outcome = "replay";
        if (call->answer.outcome == "execute") {
            claim_.kind = Kind::InProgress;
            claim_.token = call->answer.token = now_;
            claim_.lease_until = {now_ + 10 * kSecond, 0};
            ++claim_.attempt;
            if (call->function == Function::Execute) {
                claim_.kind = Kind::Completed;
                claim_.body = call->asked.body;
            }
        }
        show(call);
    }

    void show(Call* call) const {
        static const char* const kWords[] = {"", "in_progress", "completed", "failed", "retryable"};
        call->answer.found = claim_.kind != Kind::Absent;
        if (!call->answer.found) return;
        call->answer.status = kWords[static_cast<int>(claim_.kind)];
        call->answer.attempt = claim_.attempt;
        if (claim_.kind == Kind::Completed) call->answer.body = claim_.body;
    }

    History history_;
    std::mt19937 random_;
    Micros now_ = 1000 * kSecond;
    int unanswered_ = 0;
    Record claim_;
};

History load_charge() {
    return load_history(IDEM_FIXTURES "/thirteen_unanswered_calls.jsonl");
}

TEST(LinearizeTheDemo, AChargeAmongThirteenUnansweredCallsIsLegal) {
    const Judgement judgement = judge(load_charge());
    EXPECT_TRUE(judgement.violations.empty());
    EXPECT_TRUE(judgement.undecided.empty());
}

TEST(LinearizeTheDemo, ASecondChargeAmongThemIsNot) {
    History history = load_charge();
    for (Call& call : history.calls)
        if (call.answer.outcome == "replay") call.answer.outcome = "execute";
    EXPECT_EQ(verdict_of(history).fit, Fit::Illegal);
}

class Linearize : public testing::TestWithParam<unsigned> {
  protected:
    Crowd crowd_{GetParam()};

    void expect(Fit fit) {
        const Verdict verdict = verdict_of(crowd_.history());
        EXPECT_EQ(verdict.fit, fit) << verdict.explanation;
    }
};

TEST_P(Linearize, ClaimsAreLegal) {
    crowd_.claim();
    crowd_.later(Function::Begin);
    crowd_.later(Function::Get);
    expect(Fit::Legal);
}

TEST_P(Linearize, AGrantWithinALeaseIsNot) {
    crowd_.claim();
    Call again = crowd_.later(Function::Begin);
    again.transaction++;
    again.invoked = again.returned + kMillisecond;
    again.returned = again.invoked + kMillisecond;
    again.answer.attempt++;
    again.answer.token++;
    crowd_.history().calls.push_back(again);
    expect(Fit::Illegal);
}

TEST_P(Linearize, AnImpossibleAttemptIsNot) {
    crowd_.claim();
    crowd_.later(Function::Begin).answer.attempt += 2 * kUnanswered;
    expect(Fit::Illegal);
}

TEST_P(Linearize, SecretsTellNoCallsApart) {
    crowd_.claim();
    crowd_.later(Function::Begin).answer.attempt += 2 * kUnanswered;
    int number = 0;
    for (Call& call : crowd_.history().calls)
        call.asked.secret = "secret-" + std::to_string(++number);
    expect(Fit::Illegal);
}

TEST_P(Linearize, OneExecutionIsLegal) {
    crowd_.execute(false);
    expect(Fit::Legal);
}

TEST_P(Linearize, OneOfManyDifferentExecutionsIsLegal) {
    crowd_.execute(true);
    crowd_.later(Function::Get);
    expect(Fit::Legal);
}

TEST_P(Linearize, AnExecutionAfterTheAnswerIsNot) {
    crowd_.execute(true);
    crowd_.later(Function::Execute).answer.outcome = "execute";
    expect(Fit::Illegal);
}

TEST_P(Linearize, AnInventedBodyIsNot) {
    crowd_.execute(true);
    crowd_.later(Function::Execute).answer.body = "another";
    expect(Fit::Illegal);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Linearize, testing::Range(1u, 26u));

// Claims that take over from each other, all different: any half of them may have happened.
History claims_of_other_shapes(int attempt) {
    Crowd crowd(1);
    for (int i = 1; i <= kUnanswered; ++i) {
        Call& call = crowd.later(Function::Begin);
        call.asked.lease = i * kMillisecond;
        call.result = Result::Info;
        call.returned = kNever;
    }
    crowd.later(Function::Begin).answer.attempt = attempt;
    return crowd.history();
}

TEST(LinearizeAtItsLimit, ASearchThatIsCutOffMayFindAnOrder) {
    EXPECT_EQ(verdict_of(claims_of_other_shapes(kUnanswered / 2)).fit, Fit::Legal);
}

TEST(LinearizeAtItsLimit, ASearchThatIsCutOffAndFindsNoneDecidesNothing) {
    const Judgement judgement = judge(claims_of_other_shapes(2 * kUnanswered));
    EXPECT_EQ(judgement.undecided.size(), 1u);
    EXPECT_TRUE(judgement.violations.empty());
}

}  // namespace
}  // namespace idem::chaos
