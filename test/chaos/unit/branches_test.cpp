// Primaries that take over from each other, and continue when they have a successor.
#include <algorithm>

#include "check/branches.hpp"
#include "story.hpp"

namespace idem::chaos {
namespace {

// A key that was executed on the first primary, before any fault.
Story executed() {
    Story story;
    story.timeline(1).transaction().begin("execute", 10);
    story.complete_with_effect("a");
    story.commit();
    return story;
}

bool finds(const Story& story, int invariant) {
    return story.violated().count(invariant) > 0;
}

void forget(Story* story) {
    story->history().forgetful_failovers = takeovers_of(story->history());
}

TEST(Branches, TheSuccessorReplays) {
    Story story = executed();
    story.timeline(2).alone().replay("a");
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Branches, LostAcknowledgedWorkIsFound) {
    Story story = executed();
    story.history().effects.clear();
    story.timeline(2).transaction().begin("execute", 20);
    EXPECT_TRUE(finds(story, 4));
    EXPECT_EQ(count_losses(story.history()).acknowledged_and_lost, 1u);
}

TEST(Branches, WithoutAStandbyWaitItMayBeLost) {
    Story story = executed();
    story.history().effects.clear();
    story.timeline(2).transaction().begin("execute", 20);
    story.complete_with_effect("b");
    story.commit();
    forget(&story);
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Branches, AnEffectWithoutItsRecordIsFoundAlsoThere) {
    Story story = executed();
    story.timeline(2).transaction().begin("execute", 20);
    story.complete_with_effect("b");
    story.commit();
    story.history().effects.erase(story.history().effects.begin());
    story.alone().replay("a");
    forget(&story);
    EXPECT_NE(story.violated(), kNothing);
}

TEST(Branches, ATokenOfALostClaimIsNotHandedOutAgain) {
    Story story = executed();
    story.history().effects.clear();
    story.timeline(2).transaction().begin("execute", 10);
    forget(&story);
    EXPECT_EQ(story.violated(), std::set<int>{6});
}

TEST(Branches, OverSeveralFailovers) {
    Story story = executed();
    story.history().effects.clear();
    for (int timeline = 2; timeline < 5; ++timeline) {
        story.timeline(timeline).transaction().begin("execute", 10 * timeline);
        story.complete_with_effect("at " + std::to_string(timeline));
        story.commit();
        if (timeline < 4) story.history().effects.clear();
    }
    story.alone().replay("at 4");
    forget(&story);
    EXPECT_EQ(story.violated(), kNothing);
}

// Both primaries grant the key: one of them can't commit.
Story two_primaries(Result of_the_old_one) {
    Story story;
    story.timeline(1).transaction().begin("execute", 10);
    story.timeline(2).transaction().begin("execute", 20);
    story.complete_with_effect("new");
    story.commit();
    story.timeline(1).back_to(1).complete("old").asked.effect = "old";
    story.commit(of_the_old_one);
    // The calls of a session are adjacent.
    auto& calls = story.history().calls;
    std::stable_sort(calls.begin(), calls.end(), [](const Call& one, const Call& other) {
        return one.transaction < other.transaction;
    });
    return story;
}

TEST(Branches, APrimaryOfThePastMayGrantTheKeyAsLongAsNothingIsCommitted) {
    EXPECT_EQ(two_primaries(Result::Info).violated(), kNothing);
}

TEST(Branches, APrimaryOfThePastThatAcknowledgesIsFound) {
    EXPECT_TRUE(finds(two_primaries(Result::Ok), 4));
}

TEST(Branches, AnEffectOfAPrimaryOfThePastIsFound) {
    Story story = two_primaries(Result::Info);
    story.history().effects.push_back({"old", 1, {"s", "", "k"}});
    EXPECT_TRUE(finds(story, 14));
}

TEST(Branches, ALeasedClaimThatAPrimaryOfThePastHasCommittedIsFound) {
    Story story;
    story.timeline(1).alone().call(Function::Get);
    story.timeline(2).alone().call(Function::Get);
    story.timeline(1).alone().begin("execute", 10);
    EXPECT_TRUE(finds(story, 4));
}

// The old primary has committed and said so with a warning; it replays the answer to others.
Story committed_there_alone() {
    Story story;
    story.timeline(1).transaction().begin("execute", 10);
    story.complete("a").asked.effect = "a";
    story.commit(Result::Info).sqlstate = kNotReplicated;
    story.timeline(2).transaction().begin("execute", 20);
    story.rollback();
    return story;
}

TEST(Branches, AWarningIsNoAcknowledgement) {
    Story story = committed_there_alone();
    story.timeline(1).alone().replay("a");
    EXPECT_EQ(story.violated(), kNothing);
    const Losses losses = count_losses(story.history());
    EXPECT_EQ(losses.acknowledged, 0u);
    EXPECT_EQ(losses.warned_and_lost, 1u);
}

TEST(Branches, TheSuccessorMayNotReplayMissingRecords) {
    Story story = committed_there_alone();
    story.timeline(2).alone().replay("a");
    EXPECT_NE(story.violated(), kNothing);
}

TEST(Branches, AnInventedAnswerIsFoundOnThemToo) {
    Story story = executed();
    story.timeline(2).alone().replay("a");
    story.timeline(1).alone().replay("b");
    EXPECT_EQ(story.violated(), std::set<int>{2});
}

}  // namespace
}  // namespace idem::chaos
