// For each invariant read off histories: one right history and at least one wrong one.
#include "story.hpp"

namespace idem::chaos {
namespace {

using Wrong = std::set<int>;

// A correctly executed and answered key.
Story executed() {
    Story story;
    story.transaction().begin("execute", 10);
    story.complete_with_effect("a");
    story.commit();
    return story;
}

TEST(SingleEffect, OnePerGeneration) {
    Story story = executed();
    story.alone().replay("a");
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(SingleEffect, TwiceIsFound) {
    Story story = executed();
    story.history().effects.push_back(story.history().effects[0]);
    EXPECT_EQ(story.violated(), Wrong{1});
}

TEST(SameAnswer, AnotherAnswerIsFound) {
    Story story = executed();
    story.alone().replay("b");
    EXPECT_EQ(story.violated(), Wrong{2});
}

TEST(SameAnswer, AnotherStatusIsFound) {
    Story story = executed();
    story.alone().replay("a").answer.status_code = 500;
    EXPECT_EQ(story.violated(), Wrong{2});
}

TEST(NoPhantom, AnAnswerThatWasRolledBackIsFound) {
    Story story;
    story.transaction().begin("execute", 10);
    story.complete("a");
    story.rollback();
    story.alone().replay("a");
    EXPECT_EQ(story.violated(), Wrong{3});
}

TEST(NoPhantom, AnAnswerBeforeItsCommitIsFound) {
    Story story;
    story.transaction().begin("execute", 10);
    story.complete("a");
    story.transaction().replay("a");
    story.commit();
    story.back_to(1).commit();
    EXPECT_TRUE(story.violated().count(3));
}

TEST(NoPhantom, ATransactionSeesItsOwnAnswer) {
    Story story;
    story.transaction().begin("execute", 10);
    story.complete_with_effect("a");
    story.replay("a");
    story.commit();
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(NoLoss, ExecutingAgainIsFound) {
    Story story = executed();
    story.alone().begin("execute", 20);
    EXPECT_EQ(story.violated(), Wrong{4});
}

TEST(NoLoss, AfterTheRetentionItIsRight) {
    Story story = executed();
    story.later(3700 * kSecond).alone().begin("execute", 20);
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(NoLoss, AfterForgettingItIsRight) {
    Story story = executed();
    story.alone().call(Function::Forget).answer.yes = true;
    story.begin("execute", 20);
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(ExclusiveGrant, TwoTransactionsAreFound) {
    Story story;
    story.transaction().begin("execute", 10);
    story.transaction().begin("execute", 20);
    story.commit();
    story.back_to(1).rollback();
    EXPECT_TRUE(story.violated().count(5));
}

TEST(ExclusiveGrant, OneAfterTheOtherIsRight) {
    Story story;
    story.transaction().begin("execute", 10);
    story.rollback();
    story.transaction().begin("execute", 20);
    story.commit();
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Token, IssuedTwiceIsFound) {
    Story story;
    story.transaction().begin("execute", 10);
    story.rollback();
    story.transaction().begin("execute", 10);
    story.rollback();
    EXPECT_EQ(story.violated(), Wrong{6});
}

TEST(Token, GoingBackIsFound) {
    Story story;
    story.transaction().begin("execute", 10);
    story.rollback();
    story.transaction().begin("execute", 9);
    story.rollback();
    EXPECT_EQ(story.violated(), Wrong{6});
}

// A claim that was taken over.
Story taken_over() {
    Story story;
    story.alone().begin("execute", 10);
    story.later(11 * kSecond).begin("execute", 20, 2);
    return story;
}

TEST(Fence, AnOldTokenIsRefused) {
    Story story = taken_over();
    story.error(Function::Complete, "ID409", 10);
    story.complete_with_effect("b", 20);
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Fence, AnOldTokenThatCompletesIsFound) {
    Story story = taken_over();
    story.complete_with_effect("a", 10);
    EXPECT_EQ(story.violated(), Wrong{7});
}

TEST(Fence, AnOldTokenThatExtendsIsFound) {
    Story story = taken_over();
    story.call(Function::Extend).asked.token = 10;
    EXPECT_EQ(story.violated(), Wrong{7});
}

TEST(LegalMoves, ACompletedRecordThatRunsAgainIsFound) {
    Story story = executed();
    Call& get = story.alone().call(Function::Get);
    get.answer.found = true;
    get.answer.attempt = 1;
    get.answer.status = "in_progress";
    EXPECT_EQ(story.violated(), Wrong{8});
}

TEST(LegalMoves, ACompletedRecordIsSeenAsCompleted) {
    Story story = executed();
    Call& get = story.alone().call(Function::Get);
    get.answer.found = true;
    get.answer.attempt = 1;
    get.answer.body = "a";
    get.answer.status = "completed";
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Mismatch, IsRightForAnotherPayload) {
    Story story;
    story.alone().begin("execute", 10).asked.fingerprint = 1;
    story.begin("mismatch").asked.fingerprint = 2;
    story.complete_with_effect("a", 10);
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Mismatch, OfTheSamePayloadIsFound) {
    Story story;
    story.alone().begin("execute", 10).asked.fingerprint = 1;
    story.begin("mismatch").asked.fingerprint = 1;
    EXPECT_EQ(story.violated(), Wrong{9});
}

TEST(Mismatch, AReplayToAnotherPayloadIsNotExplained) {
    Story story;
    story.alone().begin("execute", 10).asked.fingerprint = 1;
    story.complete_with_effect("a", 10);
    story.begin("execute", 20, 2).asked.fingerprint = 2;
    EXPECT_EQ(story.violated(), Wrong{4});
}

TEST(Scopes, TheAnswerOfAnotherKeyIsFound) {
    Story story = executed();
    story.key("K").alone().replay("a");
    EXPECT_TRUE(story.violated().count(10));
}

TEST(Undo, AnEffectOfARollbackIsFound) {
    Story story;
    story.transaction().begin("execute", 10);
    story.complete_with_effect("a");
    story.rollback();
    EXPECT_EQ(story.violated(), Wrong{11});
}

TEST(Undo, WorkUndoneByASavepointIsGone) {
    Story story;
    story.transaction().call(Function::Savepoint).asked.savepoint = 1;
    story.begin("execute", 10);
    story.complete("a");
    story.call(Function::RollbackTo).asked.savepoint = 1;
    story.begin("execute", 20);
    story.complete_with_effect("b");
    story.commit();
    story.alone().replay("b");
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Undo, WorkThatSurvivesItsSavepointIsFound) {
    Story story;
    story.transaction().begin("execute", 10);
    story.call(Function::Savepoint).asked.savepoint = 1;
    story.complete("a");
    story.call(Function::RollbackTo).asked.savepoint = 1;
    story.commit();
    story.alone().replay("a");
    EXPECT_TRUE(story.violated().count(3));
}

// The effect tells whether the lost commit has happened, and later answers have to agree with it.
TEST(Info, EitherIsRight) {
    for (const bool happened : {false, true}) {
        Story story;
        story.transaction().begin("execute", 10);
        story.complete_with_effect("a");
        if (!happened) story.history().effects.clear();
        story.commit(Result::Info);
        if (happened)
            story.alone().replay("a");
        else
            story.alone().begin("execute", 20);
        EXPECT_EQ(story.violated(), kNothing) << happened;
    }
}

TEST(Info, HalfIsFound) {
    for (const bool effect : {false, true}) {
        Story story;
        story.transaction().begin("execute", 10);
        story.complete_with_effect("a");
        if (!effect) story.history().effects.clear();
        story.commit(Result::Info);
        if (effect)
            story.alone().begin("execute", 20);
        else
            story.alone().replay("a");
        EXPECT_FALSE(story.violated().empty()) << effect;
    }
}

TEST(Info, WithoutAWitnessBothAreTried) {
    for (const bool happened : {false, true}) {
        Story story;
        story.transaction().begin("execute", 10);
        story.commit(Result::Info);
        if (happened)
            story.alone().begin("in_progress");
        else
            story.alone().begin("execute", 20);
        EXPECT_EQ(story.violated(), kNothing) << happened;
    }
}

TEST(Info, ARetryThatIsRefusedIsFound) {
    Story story;
    story.alone().begin("execute", 10);
    story.complete_with_effect("a", 10).result = Result::Info;
    story.error(Function::Complete, "ID409", 10);
    EXPECT_EQ(story.violated(), Wrong{12});
}

TEST(Order, AnAnswerTooLateForLaterCallsIsFound) {
    Story story = executed();
    Call& late = story.alone().begin("in_progress");
    late.answer.attempt = 1;
    EXPECT_EQ(story.violated(), Wrong{13});
}

TEST(Order, OverlappingCallsMayTakePlaceInAnyOrder) {
    Story story = executed();
    const Call commit = story.history().calls[2];
    Call& early = story.alone().begin("in_progress");
    early.answer.found = false;
    early.invoked = commit.invoked;
    early.returned = commit.returned;
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Atomicity, AResultWithoutItsEffectIsFound) {
    Story story = executed();
    story.history().effects.clear();
    EXPECT_EQ(story.violated(), Wrong{14});
}

TEST(Atomicity, AnUnrecordedEffectIsFound) {
    Story story = executed();
    story.history().effects.push_back({"b", 1, {"s", "", "k"}});
    EXPECT_EQ(story.violated(), Wrong{14});
}

TEST(NoEarlyEnd, TakingOverALivingLeaseIsFound) {
    Story story;
    story.alone().begin("execute", 10);
    story.later(5 * kSecond).begin("execute", 20, 2);
    EXPECT_EQ(story.violated(), Wrong{15});
}

TEST(NoEarlyEnd, AHeartbeatCounts) {
    Story story;
    story.alone().begin("execute", 10);
    story.later(7 * kSecond).call(Function::Extend).asked.token = 10;
    story.later(7 * kSecond).begin("execute", 20, 2);
    EXPECT_EQ(story.violated(), Wrong{15});
}

TEST(NoEarlyEnd, UnderThePolicyUnknownThereIsNoTakeover) {
    Story story = taken_over();
    story.rules().unknown_on_expiry = true;
    EXPECT_EQ(story.violated(), Wrong{15});
}

TEST(Sweep, ARetryThatForgetsItsAttemptIsFound) {
    Story story;
    story.transaction().begin("execute", 10);
    Call& fail = story.call(Function::Fail);
    fail.asked.retryable = true;
    fail.asked.retry_after = 0;
    fail.answer.yes = true;
    story.commit();
    story.alone().begin("execute", 20, 1);
    EXPECT_EQ(story.violated(), Wrong{16});
}

TEST(Progress, AHolderThatCannotExistIsFound) {
    Story story;
    story.alone().begin("in_progress").answer.found = false;
    EXPECT_EQ(story.violated(), Wrong{17});
}

TEST(Progress, WhereRowsAreWrittenEarlyOtherLocksAreWaitedFor) {
    Story story;
    story.history().early_rows = true;
    Call& waited = story.alone().begin("in_progress");
    waited.answer.found = false;
    waited.returned = waited.invoked + 2 * kMillisecond;
    EXPECT_EQ(story.violated(), kNothing);
    story.history().calls.back().returned = story.history().calls.back().invoked + 10;
    EXPECT_EQ(story.violated(), Wrong{17});
}

TEST(Progress, ACallThatNeverEndsIsFound) {
    Story story;
    Call& slow = story.alone().begin("execute", 10);
    slow.returned = slow.invoked + 100 * kSecond;
    EXPECT_EQ(story.violated(), Wrong{17});
}

TEST(Errors, UndeclaredOnesAreFound) {
    Story story;
    story.alone().error(Function::Begin, "XX000");
    EXPECT_EQ(story.violated(), Wrong{19});
    Story other;
    other.alone().error(Function::Begin, "40001");
    EXPECT_EQ(other.violated(), kNothing);
}

TEST(Errors, OfShardsThatMoveAreDeclaredBesideAMove) {
    const char* const kText = "ERROR:  could not find valid entry for shard 102008";
    const auto story_of = [](const std::string& sqlstate, const char* text, Function function) {
        Story story;
        Call& call = story.alone().error(function, sqlstate);
        call.message = text;
        story.history().moves.push_back({call.invoked - kSecond, call.invoked});
        return story;
    };
    EXPECT_EQ(story_of("XX000", kText, Function::Begin).violated(), kNothing);
    EXPECT_EQ(story_of("XX000", kText, Function::Effect).violated(), kNothing);
    // Another text, another error, at COMMIT.
    EXPECT_EQ(story_of("XX000", "ERROR:  cache lookup failed", Function::Begin).violated(),
              Wrong{19});
    EXPECT_EQ(story_of("XX001", kText, Function::Begin).violated(), Wrong{19});
    EXPECT_EQ(story_of("XX000", kText, Function::Commit).violated(), Wrong{19});
    // Before and long after it, and without one.
    Story before = story_of("XX000", kText, Function::Begin);
    before.history().moves[0] = {before.history().calls[0].returned + 1, kNever};
    EXPECT_EQ(before.violated(), Wrong{19});
    Story after = story_of("XX000", kText, Function::Begin);
    after.history().moves[0] = {0, after.history().calls[0].invoked - 60 * kSecond};
    EXPECT_EQ(after.violated(), Wrong{19});
    Story without = story_of("XX000", kText, Function::Begin);
    without.history().moves.clear();
    EXPECT_EQ(without.violated(), Wrong{19});
}

}  // namespace
}  // namespace idem::chaos
