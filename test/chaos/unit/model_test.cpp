// What is particular about this protocol: what the model must accept, and what not.
#include "story.hpp"

namespace idem::chaos {
namespace {

using Wrong = std::set<int>;

TEST(Model, ALateCompletionWithoutARivalIsAccepted) {
    Story story;
    story.alone().begin("execute", 10);
    story.later(60 * kSecond).complete_with_effect("a", 10);
    story.replay("a");
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Model, ARepeatedCompletionIsHarmless) {
    Story story;
    story.alone().begin("execute", 10);
    story.complete_with_effect("a", 10);
    story.complete("b", 10, false);
    story.replay("a");
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Model, ReleasingTheFirstAttemptLeavesNothing) {
    Story story;
    story.alone().begin("execute", 10).asked.fingerprint = 1;
    Call& release = story.call(Function::Release);
    release.asked.token = 10;
    release.answer.yes = true;
    story.begin("execute", 20).asked.fingerprint = 2;
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Model, ReleasingALaterAttemptKeepsThePayload) {
    Story story;
    story.alone().begin("execute", 10).asked.fingerprint = 1;
    story.later(11 * kSecond).begin("execute", 20, 2);
    Call& release = story.call(Function::Release);
    release.asked.token = 20;
    release.answer.yes = true;
    story.begin("mismatch").asked.fingerprint = 2;
    story.begin("execute", 30, 2).asked.fingerprint = 1;
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Model, AClaimReleasedInItsTransactionGivesTheKeyAway) {
    Story story;
    story.transaction().begin("execute", 10);
    story.call(Function::Release).answer.yes = true;
    story.transaction().begin("execute", 20);
    story.rollback();
    story.back_to(1).commit();
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Model, TheLeaseCountsFromTheCommit) {
    Story story;
    story.transaction().begin("execute", 10);
    story.later(60 * kSecond).commit();
    story.alone().begin("execute", 20, 2);
    EXPECT_EQ(story.violated(), Wrong{15});
}

TEST(Model, APreparedTransactionKeepsTheKey) {
    Story story;
    story.transaction().begin("execute", 10);
    story.complete_with_effect("a");
    story.call(Function::Prepare);
    story.alone().begin("in_progress").answer.found = false;
    story.back_to(1).call(Function::CommitPrepared);
    story.alone().replay("a");
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Model, APreparedTransactionThatIsIgnoredIsFound) {
    Story story;
    story.transaction().begin("execute", 10);
    story.call(Function::Prepare);
    story.transaction().begin("execute", 20);
    story.rollback();
    story.back_to(1).call(Function::RollbackPrepared);
    EXPECT_TRUE(story.violated().count(5));
}

TEST(Model, ARetryWaitsForItsPauseAndItsLimit) {
    Story story;
    story.rules().max_attempts = 1;
    story.alone().begin("execute", 10);
    Call& fail = story.call(Function::Fail);
    fail.asked.token = 10;
    fail.asked.retryable = true;
    fail.asked.retry_after = 3600 * kSecond;
    fail.answer.yes = true;
    story.begin("exhausted");
    EXPECT_EQ(story.violated(), kNothing);
    story.rules().max_attempts = 2;
    EXPECT_FALSE(story.violated().empty());
}

TEST(Model, AnOperatorsReleaseAllowsOneAttemptMore) {
    Story story;
    story.rules().max_attempts = 1;
    story.alone().begin("execute", 10);
    Call& resolve = story.call(Function::Resolve);
    resolve.asked.action = "release";
    resolve.answer.yes = true;
    story.begin("execute", 20, 2);
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Model, ARecoveryPointIsInherited) {
    Story story;
    story.alone().begin("execute", 10);
    Call& checkpoint = story.call(Function::Checkpoint);
    checkpoint.asked.token = 10;
    checkpoint.asked.point = "charged";
    story.later(11 * kSecond).begin("execute", 20, 2).answer.point = "charged";
    EXPECT_EQ(story.violated(), kNothing);
    story.history().calls.back().answer.point.clear();
    EXPECT_EQ(story.violated(), Wrong{15});
}

TEST(Model, DroppingTheExtensionForgetsEverything) {
    Story story;
    story.transaction().begin("execute", 10);
    story.complete_with_effect("a");
    story.commit();
    story.alone().call(Function::Drop);
    story.begin("execute", 20);
    EXPECT_EQ(story.violated(), kNothing);
}

// The new primary has not got the second key's answer, but it has the first one's.
TEST(Model, AForgetfulFailoverLosesRecordAndEffectTogether) {
    Story story;
    story.transaction().begin("execute", 10);
    story.complete_with_effect("a");
    story.commit();
    story.key("lost").transaction().begin("execute", 11);
    story.complete_with_effect("b");
    story.commit();
    story.history().effects.pop_back();
    story.history().forgetful_failover = story.history().calls.back().returned + 1;
    story.key("k").alone().replay("a");
    story.key("lost").begin("execute", 20);
    EXPECT_EQ(story.violated(), kNothing);
    story.replay("b");
    EXPECT_FALSE(story.violated().empty());
}

TEST(Model, HistoriesSurviveBeingKept) {
    Story story;
    story.transaction().begin("execute", 10);
    story.complete_with_effect("a");
    story.commit(Result::Info);
    story.alone().replay("a");
    const std::string file = ::testing::TempDir() + "/history.jsonl";
    save(story.history(), file);
    const History loaded = load_history(file);
    ASSERT_EQ(loaded.calls.size(), story.history().calls.size());
    for (std::size_t i = 0; i < loaded.calls.size(); ++i)
        EXPECT_EQ(describe(loaded.calls[i]), describe(story.history().calls[i]));
    EXPECT_EQ(loaded.effects.size(), 1u);
    EXPECT_TRUE(judge(loaded).violations.empty());
}

}  // namespace
}  // namespace idem::chaos
