// The outcome table, row by row, then its promises over every combination of a small grid.
#include "core/decision.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace idem::core {
namespace {

using Micros = std::int64_t;
constexpr Micros kEarliest = std::numeric_limits<Micros>::min();
constexpr Micros kLatest = std::numeric_limits<Micros>::max();

constexpr Micros kNow = 1'000'000;
constexpr Micros kPast = kNow - 100;
constexpr Micros kFuture = kNow + 100;

Terms at(Micros now) {
    return {now,
            /*memory=*/1000,
            std::nullopt,
            /*max_attempts=*/3,
            OnLeaseExpiry::Takeover,
            /*unknown_retry_after=*/60};
}

Terms first_sent_at(Micros first_sent) {
    Terms asked = at(kNow);
    asked.first_sent = first_sent;
    return asked;
}

// A record within its ttl, whose lease and backoff have expired.
Known record(Status status) {
    Known facts{};
    facts.status = status;
    facts.attempt = 1;
    facts.lease_until = kPast;
    facts.next_attempt_at = kPast;
    facts.expires_at = kFuture;
    facts.retained_until = kFuture + 100;
    facts.same_fingerprint = true;
    return facts;
}

Known past_ttl(Status status) {
    Known facts = record(status);
    facts.expires_at = kPast;
    return facts;
}

Known past_retention(Status status) {
    Known facts = past_ttl(status);
    facts.retained_until = kPast;
    return facts;
}

Known leased_until(Micros lease_until) {
    Known facts = record(Status::InProgress);
    facts.lease_until = lease_until;
    return facts;
}

Known retryable(int attempt, Micros next_attempt_at) {
    Known facts = record(Status::Retryable);
    facts.attempt = attempt;
    facts.next_attempt_at = next_attempt_at;
    return facts;
}

Known other_payload(Known facts) {
    facts.same_fingerprint = false;
    return facts;
}

void expect(const Decision& got, Outcome outcome, Execution execution, Micros retry_after = 0) {
    EXPECT_EQ(got.outcome, outcome);
    EXPECT_EQ(got.execution, execution);
    EXPECT_EQ(got.retry_after, retry_after);
}

void expect_refused(const Decision& got, Outcome outcome, Micros retry_after = 0) {
    expect(got, outcome, Execution::None, retry_after);
}

constexpr Status kFinalStatuses[] = {Status::Completed, Status::Failed, Status::Retryable,
                                     Status::Exhausted};

// ---- no record ----

TEST(DecideWithoutRecord, ExecutesFirst) {
    expect(decide(nullptr, at(kNow)), Outcome::Execute, Execution::First);
}

TEST(DecideWithoutRecord, RefusesRequestsSentBeforeRetention) {
    expect_refused(decide(nullptr, first_sent_at(kNow - 1001)), Outcome::Expired);
    expect_refused(decide(nullptr, first_sent_at(kEarliest)), Outcome::Expired);
}

TEST(DecideWithoutRecord, ExecutesRequestsSentWithinRetention) {
    expect(decide(nullptr, first_sent_at(kNow - 1000)), Outcome::Execute, Execution::First);
    expect(decide(nullptr, first_sent_at(kNow)), Outcome::Execute, Execution::First);
    expect(decide(nullptr, first_sent_at(kLatest)), Outcome::Execute, Execution::First);
}

TEST(DecideWithoutRecord, RetentionLongerThanTimeReachesBackForEver) {
    Terms asked = first_sent_at(kEarliest);
    asked.now = kEarliest + 10;
    asked.memory = kLatest;
    expect(decide(nullptr, asked), Outcome::Execute, Execution::First);
}

TEST(DecideWithoutRecord, HeldElsewhereIsInProgress) {
    expect_refused(kDecidedElsewhere, Outcome::InProgress, kTransactionHint);
}

// ---- mismatch: before everything below ----

TEST(DecideMismatch, ComesFirstInEveryStateBeforeTtl) {
    for (const Status status : {Status::InProgress, Status::Completed, Status::Failed,
                                Status::Retryable, Status::Exhausted, Status::Unknown}) {
        const Known facts = other_payload(record(status));
        expect_refused(decide(&facts, at(kNow)), Outcome::Mismatch);
    }
}

TEST(DecideMismatch, EndsWithTheTtlForFinalStates) {
    for (const Status status : kFinalStatuses) {
        Known facts = other_payload(record(status));
        facts.expires_at = kNow + 1;
        expect_refused(decide(&facts, at(kNow)), Outcome::Mismatch);
        facts.expires_at = kNow;
        expect_refused(decide(&facts, at(kNow)), Outcome::Expired);
    }
}

TEST(DecideMismatch, HoldsForEverWithoutAFinalAnswer) {
    for (const Status status : {Status::InProgress, Status::Unknown}) {
        const Known facts = other_payload(past_retention(status));
        expect_refused(decide(&facts, at(kNow)), Outcome::Mismatch);
    }
}

TEST(DecideMismatch, ComesBeforeTheLivingLease) {
    const Known facts = other_payload(leased_until(kFuture));
    expect_refused(decide(&facts, at(kNow)), Outcome::Mismatch);
}

TEST(DecideMismatch, ForgetsThePayloadAfterRetention) {
    for (const Status status : kFinalStatuses) {
        const Known facts = other_payload(past_retention(status));
        expect(decide(&facts, at(kNow)), Outcome::Execute, Execution::Reuse);
    }
}

// ---- in progress ----

TEST(DecideInProgress, WaitsForALivingLease) {
    const Known facts = leased_until(kNow + 30);
    expect_refused(decide(&facts, at(kNow)), Outcome::InProgress, 30);
}

TEST(DecideInProgress, TakesOverExactlyAtTheEndOfTheLease) {
    const Known living = leased_until(kNow + 1);
    expect_refused(decide(&living, at(kNow)), Outcome::InProgress, 1);
    const Known over = leased_until(kNow);
    expect(decide(&over, at(kNow)), Outcome::Execute, Execution::Takeover);
}

TEST(DecideInProgress, TakesOverWhenTheHolderHasExited) {
    Known facts = leased_until(kFuture);
    facts.holder_gone = true;
    expect(decide(&facts, at(kNow)), Outcome::Execute, Execution::Takeover);
}

TEST(DecideInProgress, PolicyCanForbidTakingOver) {
    Terms asked = at(kNow);
    asked.on_lease_expiry = OnLeaseExpiry::Unknown;
    Known facts = leased_until(kNow);
    expect_refused(decide(&facts, asked), Outcome::Unknown, 60);
    facts = leased_until(kFuture);
    expect_refused(decide(&facts, asked), Outcome::InProgress, 100);
    facts.holder_gone = true;
    expect_refused(decide(&facts, asked), Outcome::Unknown, 60);
}

TEST(DecideInProgress, ThePolicyAtTheClaimCountsAsToday) {
    Known facts = leased_until(kNow);
    facts.if_silent = IfSilent::Unknown;
    expect_refused(decide(&facts, at(kNow)), Outcome::Unknown, 60);
    EXPECT_EQ(status_at(facts, at(kNow)), Status::Unknown);
    facts.lease_until = kFuture;
    expect_refused(decide(&facts, at(kNow)), Outcome::InProgress, 100);
    EXPECT_EQ(status_at(facts, at(kNow)), Status::InProgress);
}

TEST(DecideInProgress, OnlyAClaimBecomesSomethingElse) {
    for (const Status status : kFinalStatuses) {
        for (const IfSilent if_silent : {IfSilent::Unknown, IfSilent::Exhausted}) {
            Known facts = leased_until(kPast);
            facts.status = status;
            facts.if_silent = if_silent;
            EXPECT_EQ(status_at(facts, at(kNow)), status);
        }
    }
}

TEST(DecideInProgress, TtlAndRetentionDoNotEndAClaim) {
    Known facts = past_retention(Status::InProgress);
    expect(decide(&facts, at(kNow)), Outcome::Execute, Execution::Takeover);
    facts.lease_until = kFuture;
    expect_refused(decide(&facts, at(kNow)), Outcome::InProgress, 100);
}

TEST(DecideInProgress, TheWindowOfADerivedKeyEndsASilentClaim) {
    Known silent = past_retention(Status::InProgress);
    silent.derived = true;
    expect(decide(&silent, at(kNow)), Outcome::Execute, Execution::Reuse);
    silent.attempt = 3;
    expect(decide(&silent, at(kNow)), Outcome::Execute, Execution::Reuse);
    silent.retained_until = kNow + 1;
    silent.attempt = 1;
    expect(decide(&silent, at(kNow)), Outcome::Execute, Execution::Takeover);
    Known living = past_retention(Status::InProgress);
    living.derived = true;
    living.lease_until = kNow + 5;
    expect(decide(&living, at(kNow)), Outcome::InProgress, Execution::None, 5);
    Known unknown = past_retention(Status::InProgress);
    unknown.derived = true;
    unknown.if_silent = IfSilent::Unknown;
    expect(decide(&unknown, at(kNow)), Outcome::Unknown, Execution::None, 60);
}

TEST(DecideInProgress, MaxAttemptsBoundsTakeovers) {
    Known facts = leased_until(kPast);
    facts.attempt = 2;
    expect(decide(&facts, at(kNow)), Outcome::Execute, Execution::Takeover);
    facts.attempt = 3;
    expect_refused(decide(&facts, at(kNow)), Outcome::Exhausted);
    // An attempt that an operator has allowed is used up by running, too.
    facts.released_by_operator = true;
    expect_refused(decide(&facts, at(kNow)), Outcome::Exhausted);
    facts.lease_until = kFuture;
    expect_refused(decide(&facts, at(kNow)), Outcome::InProgress, 100);
}

TEST(DecideInProgress, TheLimitAtTheClaimCountsAsToday) {
    Known facts = leased_until(kPast);
    facts.if_silent = IfSilent::Exhausted;
    Terms asked = at(kNow);
    asked.max_attempts = 0;
    expect_refused(decide(&facts, asked), Outcome::Exhausted);
    EXPECT_EQ(status_at(facts, asked), Status::Exhausted);
    facts.lease_until = kFuture;
    expect_refused(decide(&facts, asked), Outcome::InProgress, 100);
    EXPECT_EQ(status_at(facts, asked), Status::InProgress);
}

TEST(DecideInProgress, AnUnknownClaimIsNeverExhausted) {
    Known facts = leased_until(kPast);
    facts.attempt = 3;
    facts.if_silent = IfSilent::Unknown;
    expect_refused(decide(&facts, at(kNow)), Outcome::Unknown, 60);
    facts.if_silent = IfSilent::Exhausted;
    Terms asked = at(kNow);
    asked.on_lease_expiry = OnLeaseExpiry::Unknown;
    expect_refused(decide(&facts, asked), Outcome::Unknown, 60);
}

TEST(DecideInProgress, NoAgeEndsASilentOne) {
    Known facts = past_retention(Status::InProgress);
    facts.if_silent = IfSilent::Exhausted;
    expect_refused(decide(&facts, at(kNow)), Outcome::Exhausted);
    facts.same_fingerprint = false;
    expect_refused(decide(&facts, at(kNow)), Outcome::Mismatch);
}

TEST(DecideInProgress, EndlessLeaseDoesNotOverflow) {
    const Known facts = leased_until(kLatest);
    expect_refused(decide(&facts, at(-5)), Outcome::InProgress, kLatest);
}

// ---- retryable ----

TEST(DecideRetryable, ExecutesOnceTheBackoffIsOver) {
    const Known waiting = retryable(1, kNow + 1);
    expect_refused(decide(&waiting, at(kNow)), Outcome::RetryLater, 1);
    const Known due = retryable(1, kNow);
    expect(decide(&due, at(kNow)), Outcome::Execute, Execution::Retry);
}

TEST(DecideRetryable, SaysHowLongTheBackoffLasts) {
    const Known facts = retryable(2, kNow + 77);
    expect_refused(decide(&facts, at(kNow)), Outcome::RetryLater, 77);
    const Known endless = retryable(2, kLatest);
    expect_refused(decide(&endless, at(-5)), Outcome::RetryLater, kLatest);
}

TEST(DecideRetryable, IsExhaustedAtTheLastAttempt) {
    const Known one_left = retryable(2, kPast);
    expect(decide(&one_left, at(kNow)), Outcome::Execute, Execution::Retry);
    const Known none_left = retryable(3, kPast);
    expect_refused(decide(&none_left, at(kNow)), Outcome::Exhausted);
}

TEST(DecideRetryable, ExhaustedComesBeforeBackoff) {
    const Known facts = retryable(3, kFuture);
    expect_refused(decide(&facts, at(kNow)), Outcome::Exhausted);
}

TEST(DecideRetryable, ZeroMeansNoLimit) {
    Terms asked = at(kNow);
    asked.max_attempts = 0;
    const Known facts = retryable(1000, kPast);
    expect(decide(&facts, asked), Outcome::Execute, Execution::Retry);
}

TEST(DecideRetryable, OperatorAllowsOneMoreAttempt) {
    Known facts = retryable(3, kPast);
    facts.released_by_operator = true;
    expect(decide(&facts, at(kNow)), Outcome::Execute, Execution::Retry);
    facts.next_attempt_at = kFuture;
    expect_refused(decide(&facts, at(kNow)), Outcome::RetryLater, 100);
}

// ---- exhausted ----

TEST(DecideExhausted, IsNotRevivedByALimitThatIsRaised) {
    const Known facts = record(Status::Exhausted);
    Terms asked = at(kNow);
    for (const int max_attempts : {0, 1, 100}) {
        asked.max_attempts = max_attempts;
        expect_refused(decide(&facts, asked), Outcome::Exhausted);
    }
}

TEST(DecideExhausted, IsForgottenWithItsRetention) {
    Known facts = record(Status::Exhausted);
    facts.expires_at = facts.retained_until = kNow + 1;
    expect_refused(decide(&facts, at(kNow)), Outcome::Exhausted);
    facts.expires_at = facts.retained_until = kNow;
    expect(decide(&facts, at(kNow)), Outcome::Execute, Execution::Reuse);
}

// ---- completed, failed ----

TEST(DecideFinal, ReplaysUntilExactlyTheEndOfTheTtl) {
    for (const Status status : {Status::Completed, Status::Failed}) {
        Known facts = record(status);
        facts.expires_at = kNow + 1;
        expect_refused(decide(&facts, at(kNow)), Outcome::Replay);
        facts.expires_at = kNow;
        expect_refused(decide(&facts, at(kNow)), Outcome::Expired);
    }
}

TEST(DecideFinal, ReplaysHoweverLongAgoItWasSent) {
    const Known facts = record(Status::Completed);
    expect_refused(decide(&facts, first_sent_at(kEarliest)), Outcome::Replay);
}

// ---- any final state after the ttl ----

TEST(DecideAfterTtl, RefusesUntilExactlyTheEndOfRetention) {
    for (const Status status : kFinalStatuses) {
        Known facts = past_ttl(status);
        facts.retained_until = kNow + 1;
        expect_refused(decide(&facts, at(kNow)), Outcome::Expired);
        facts.retained_until = kNow;
        expect(decide(&facts, at(kNow)), Outcome::Execute, Execution::Reuse);
    }
}

TEST(DecideAfterTtl, AttemptsAndBackoffNoLongerCount) {
    Known facts = past_retention(Status::Retryable);
    facts.attempt = 3;
    facts.next_attempt_at = kFuture;
    expect(decide(&facts, at(kNow)), Outcome::Execute, Execution::Reuse);
}

TEST(DecideAfterTtl, RefusesReuseForRequestsSentBeforeRetention) {
    for (const Status status : kFinalStatuses) {
        const Known facts = past_retention(status);
        expect_refused(decide(&facts, first_sent_at(kNow - 1001)), Outcome::Expired);
        expect(decide(&facts, first_sent_at(kNow - 1000)), Outcome::Execute, Execution::Reuse);
    }
}

TEST(DecideAfterTtl, RefusesReuseForRequestsThatMayBeTheRecords) {
    for (const Status status : kFinalStatuses) {
        Known facts = past_retention(status);
        facts.claimed_at = kNow - 500;
        expect_refused(decide(&facts, first_sent_at(kNow - 501)), Outcome::Expired);
        expect_refused(decide(&facts, first_sent_at(kNow - 500)), Outcome::Expired);
        expect(decide(&facts, first_sent_at(kNow - 499)), Outcome::Execute, Execution::Reuse);
        expect(decide(&facts, at(kNow)), Outcome::Execute, Execution::Reuse);
    }
}

TEST(DecideAfterTtl, RetentionShorterThanTtlStillReplays) {
    Known facts = record(Status::Completed);
    facts.retained_until = kPast;
    expect_refused(decide(&facts, at(kNow)), Outcome::Replay);
}

// ---- unknown ----

TEST(DecideUnknown, StaysUntilResolved) {
    const Known fresh = record(Status::Unknown);
    expect_refused(decide(&fresh, at(kNow)), Outcome::Unknown, 60);
    const Known old = past_retention(Status::Unknown);
    expect_refused(decide(&old, at(kNow)), Outcome::Unknown, 60);
}

TEST(DecideUnknown, IsTheAnswerToAStatusThatIsNoneOfOurs) {
    for (Known facts : {record(Status{'?'}), past_retention(Status{'?'})}) {
        expect_refused(decide(&facts, at(kNow)), Outcome::Unknown, 60);
    }
}

// ---- reasons ----

Reason reason_of(const Known& facts, const Terms& asked = at(kNow)) {
    return decide(&facts, asked).reason;
}

TEST(DecideReason, WithoutARecord) {
    EXPECT_EQ(decide(nullptr, at(kNow)).reason, Reason::NoRecord);
    EXPECT_EQ(decide(nullptr, first_sent_at(kEarliest)).reason, Reason::SentBeforeMemory);
}

TEST(DecideReason, OfAnotherRequest) {
    EXPECT_EQ(reason_of(other_payload(record(Status::Completed))), Reason::OtherRequest);
}

TEST(DecideReason, OfAClaim) {
    EXPECT_EQ(reason_of(leased_until(kFuture)), Reason::Leased);
    EXPECT_EQ(reason_of(leased_until(kPast)), Reason::LeaseOver);
    Known gone = leased_until(kFuture);
    gone.holder_gone = true;
    EXPECT_EQ(reason_of(gone), Reason::SessionEnded);
    gone.if_silent = IfSilent::Unknown;
    EXPECT_EQ(reason_of(gone), Reason::TakeoverForbidden);
    Known silent = leased_until(kPast);
    silent.attempt = 3;
    EXPECT_EQ(reason_of(silent), Reason::AttemptsTimedOut);
    silent.status = Status::Exhausted;
    EXPECT_EQ(reason_of(silent), Reason::AttemptsTimedOut);
    silent.lease_until = 0;
    EXPECT_EQ(reason_of(silent), Reason::AttemptsFailed);
    EXPECT_EQ(reason_of(record(Status::Unknown)), Reason::OutcomeUnknown);
    EXPECT_EQ(reason_of(record(Status{'?'})), Reason::TakeoverForbidden);
}

TEST(DecideReason, OfAFailure) {
    EXPECT_EQ(reason_of(retryable(1, kFuture)), Reason::Pause);
    EXPECT_EQ(reason_of(retryable(1, kPast)), Reason::RetryDue);
    EXPECT_EQ(reason_of(retryable(3, kPast)), Reason::AttemptsFailed);
}

TEST(DecideReason, OfAnAnswer) {
    EXPECT_EQ(reason_of(record(Status::Completed)), Reason::Answered);
    EXPECT_EQ(reason_of(record(Status::Failed)), Reason::Answered);
    EXPECT_EQ(reason_of(past_ttl(Status::Completed)), Reason::TtlOver);
    EXPECT_EQ(reason_of(past_retention(Status::Completed)), Reason::RetentionOver);
    Known later = past_retention(Status::Completed);
    later.claimed_at = kPast;
    EXPECT_EQ(reason_of(later, first_sent_at(kPast - 1)), Reason::SentBeforeClaim);
    later.claimed_at = kEarliest;
    EXPECT_EQ(reason_of(later, first_sent_at(kNow - 1001)), Reason::SentBeforeMemory);
}

// ---- every combination of a small grid ----

struct Case {
    Known record;
    Terms asked;
    Decision decision;

    bool final_answer() const {
        return record.status == Status::Completed || record.status == Status::Failed;
    }
    bool executes() const { return decision.outcome == Outcome::Execute; }
    bool before_ttl() const { return asked.now < record.expires_at; }
    bool remembered() const { return before_ttl() || asked.now < record.retained_until; }
    bool lease_lives() const { return asked.now < record.lease_until && !record.holder_gone; }
    bool attempts_left() const {
        return asked.max_attempts == 0 || record.released_by_operator ||
               record.attempt < asked.max_attempts;
    }
    bool sent_too_early() const {
        return asked.first_sent && *asked.first_sent < asked.now - asked.memory;
    }
};

std::vector<Known> every_record() {
    const Micros times[] = {kNow - 1, kNow, kNow + 1};
    const IfSilent silences[] = {IfSilent::Takeover, IfSilent::Unknown, IfSilent::Exhausted};
    std::vector<Known> all;
    for (const Status status : {Status::InProgress, Status::Completed, Status::Failed,
                                Status::Retryable, Status::Exhausted, Status::Unknown})
        for (const int attempt : {1, 2, 3})
            for (const Micros lease_until : times)
                for (const Micros next_attempt_at : times)
                    for (const Micros expires_at : times)
                        for (const Micros retained_until : times)
                            for (int flags = 0; flags < 24; ++flags)
                                all.push_back({status, attempt, lease_until, next_attempt_at,
                                               expires_at, retained_until, (flags & 1) != 0,
                                               (flags & 2) != 0, silences[flags / 8],
                                               (flags & 4) != 0,
                                               /*claimed_at=*/kNow - 1000, /*derived=*/false});
    return all;
}

std::vector<Terms> every_question() {
    const std::optional<Micros> first_sents[] = {std::nullopt, kNow - 11, kNow - 10, kNow};
    std::vector<Terms> all;
    for (const auto& first_sent : first_sents)
        for (const int max_attempts : {0, 1, 2})
            for (const auto policy : {OnLeaseExpiry::Takeover, OnLeaseExpiry::Unknown})
                all.push_back({kNow, /*memory=*/10, first_sent, max_attempts, policy,
                               /*unknown_retry_after=*/60});
    return all;
}

class DecideGrid : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        const std::vector<Terms> questions = every_question();
        for (const Known& facts : every_record())
            for (const Terms& asked : questions)
                cases().push_back({facts, asked, decide(&facts, asked)});
    }
    static void TearDownTestSuite() { cases().clear(); }

    static std::vector<Case>& cases() {
        static std::vector<Case> all;
        return all;
    }

    // Checks a promise on the cases that it covers, of which there must be some.
    template <typename Applies, typename Holds>
    static void always(Applies applies, Holds holds) {
        std::size_t applied = 0;
        std::size_t broken = 0;
        const Case* example = nullptr;
        for (const Case& c : cases()) {
            if (!applies(c)) continue;
            ++applied;
            if (holds(c)) continue;
            ++broken;
            example = &c;
        }
        EXPECT_GT(applied, 0u);
        EXPECT_EQ(broken, 0u) << "of " << applied << " cases; one of them: " << describe(example);
    }

    static std::string describe(const Case* c) {
        if (c == nullptr) return "none";
        return "status " + std::string(1, static_cast<char>(c->record.status)) + " lease " +
               std::to_string(c->record.lease_until - kNow) + " ttl " +
               std::to_string(c->record.expires_at - kNow) + " retention " +
               std::to_string(c->record.retained_until - kNow) + " gave outcome " +
               std::to_string(static_cast<int>(c->decision.outcome)) + " claim " +
               std::to_string(static_cast<int>(c->decision.execution));
    }
};

bool any(const Case&) {
    return true;
}

TEST_F(DecideGrid, ReachesEveryOutcomeAndEveryClaimOfARecord) {
    std::map<Outcome, int> outcomes;
    std::map<Execution, int> claims;
    for (const Case& c : cases()) {
        ++outcomes[c.decision.outcome];
        ++claims[c.decision.execution];
    }
    EXPECT_EQ(outcomes.size(), 8u);
    EXPECT_EQ(claims.size(), 4u);
    EXPECT_EQ(claims.count(Execution::First), 0u);
}

TEST_F(DecideGrid, ClaimsExactlyTheExecutions) {
    always(any,
           [](const Case& c) { return c.executes() == (c.decision.execution != Execution::None); });
}

TEST_F(DecideGrid, LivingLeaseIsNeverExecuted) {
    always([](const Case& c) { return c.record.status == Status::InProgress && c.lease_lives(); },
           [](const Case& c) {
               return c.decision.outcome ==
                      (c.record.same_fingerprint ? Outcome::InProgress : Outcome::Mismatch);
           });
}

TEST_F(DecideGrid, OtherPayloadNeverExecutesWhileRemembered) {
    always([](const Case& c) { return !c.record.same_fingerprint && c.remembered(); },
           [](const Case& c) { return !c.executes(); });
}

TEST_F(DecideGrid, OtherPayloadNeverContinuesAnAttempt) {
    always([](const Case& c) { return !c.record.same_fingerprint && c.executes(); },
           [](const Case& c) { return c.decision.execution == Execution::Reuse; });
}

TEST_F(DecideGrid, SamePayloadIsNeverAMismatch) {
    always([](const Case& c) { return c.record.same_fingerprint; },
           [](const Case& c) { return c.decision.outcome != Outcome::Mismatch; });
}

TEST_F(DecideGrid, FinalAnswerIsNeverExecutedAgainWhileRemembered) {
    always([](const Case& c) { return c.final_answer() && c.remembered(); },
           [](const Case& c) { return !c.executes(); });
}

TEST_F(DecideGrid, FinalAnswerIsReplayedExactlyBeforeTtl) {
    always([](const Case& c) { return c.record.same_fingerprint; },
           [](const Case& c) {
               return (c.decision.outcome == Outcome::Replay) ==
                      (c.final_answer() && c.before_ttl());
           });
}

TEST_F(DecideGrid, RetryableRunsBeforeTtlExactlyWhenDueAndAllowed) {
    always(
        [](const Case& c) {
            return c.record.status == Status::Retryable && c.record.same_fingerprint &&
                   c.before_ttl();
        },
        [](const Case& c) {
            const bool due = c.asked.now >= c.record.next_attempt_at;
            return (c.decision.execution == Execution::Retry) == (due && c.attempts_left());
        });
}

TEST_F(DecideGrid, UnknownIsNeverExecuted) {
    always([](const Case& c) { return c.record.status == Status::Unknown; },
           [](const Case& c) { return !c.executes(); });
}

TEST_F(DecideGrid, ExhaustedIsNeverExecutedWhileRemembered) {
    always([](const Case& c) { return c.record.status == Status::Exhausted && c.remembered(); },
           [](const Case& c) { return !c.executes(); });
}

TEST_F(DecideGrid, ExhaustedWhereNoAttemptIsLeft) {
    always([](const Case& c) { return c.decision.outcome == Outcome::Exhausted; },
           [](const Case& c) {
               return c.record.status == Status::Exhausted || !c.attempts_left() ||
                      c.record.if_silent == IfSilent::Exhausted ||
                      (c.record.status == Status::InProgress && c.record.released_by_operator);
           });
}

TEST_F(DecideGrid, PolicyUnknownNeverTakesOver) {
    always(
        [](const Case& c) {
            return c.asked.on_lease_expiry == OnLeaseExpiry::Unknown ||
                   c.record.if_silent == IfSilent::Unknown;
        },
        [](const Case& c) { return c.decision.execution != Execution::Takeover; });
}

TEST_F(DecideGrid, EachClaimComesFromItsOwnStatus) {
    always([](const Case& c) { return c.executes(); },
           [](const Case& c) {
               switch (c.decision.execution) {
                   case Execution::Takeover:
                       return c.record.status == Status::InProgress;
                   case Execution::Retry:
                       return c.record.status == Status::Retryable;
                   case Execution::Reuse:
                       return c.record.status != Status::InProgress;
                   default:
                       return false;
               }
           });
}

TEST_F(DecideGrid, RowIsReusedExactlyWhenForgotten) {
    always([](const Case& c) { return c.final_answer(); },
           [](const Case& c) {
               return (c.decision.execution == Execution::Reuse) ==
                      (!c.remembered() && !c.sent_too_early());
           });
}

TEST_F(DecideGrid, RetryAfterIsGivenExactlyWithOutcomesThatPass) {
    always(any, [](const Case& c) {
        const bool passes = c.decision.outcome == Outcome::InProgress ||
                            c.decision.outcome == Outcome::RetryLater ||
                            c.decision.outcome == Outcome::Unknown;
        return passes ? c.decision.retry_after > 0 : c.decision.retry_after == 0;
    });
}

TEST_F(DecideGrid, AfterRetryAfterTheAnswerDiffers) {
    always(
        [](const Case& c) {
            return c.decision.retry_after > 0 && c.decision.outcome != Outcome::Unknown;
        },
        [](const Case& c) {
            Terms later = c.asked;
            later.now += c.decision.retry_after;
            return decide(&c.record, later).outcome != c.decision.outcome;
        });
}

}  // namespace
}  // namespace idem::core
