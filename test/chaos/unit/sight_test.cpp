// A transaction that is granted a key sees all earlier work.
#include "story.hpp"

namespace idem::chaos {
namespace {

using Wrong = std::set<int>;

Call& fail(Story& story, std::int64_t token = 0) {
    Call& made = story.call(Function::Fail);
    made.asked.retryable = true;
    made.asked.retry_after = 0;
    made.asked.token = token;
    made.answer.yes = true;
    return made;
}

// An attempt that failed and left part 1.
Story failed_once() {
    Story story;
    story.transaction().begin("execute", 10);
    story.part("p1", PartKind::Once, 10);
    fail(story);
    story.commit();
    return story;
}

TEST(Sight, ASessionThatSeesItContinues) {
    Story story = failed_once();
    story.transaction().begin("execute", 20, 2);
    story.look(20, {1});
    story.complete_with_effect("a");
    story.commit();
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Sight, ASessionThatDoesNotSeeItIsFound) {
    Story story = failed_once();
    story.transaction().begin("execute", 20, 2);
    story.look(20, {});
    story.complete_with_effect("a");
    story.commit();
    EXPECT_EQ(story.violated(), Wrong{23});
}

// The grant has waited: the call was sent before the other's commit, and answered after it.
TEST(Sight, ASessionThatHasWaitedIsFoundToo) {
    Story story;
    story.transaction().begin("execute", 10);
    story.part("p1", PartKind::Once, 10);
    fail(story);
    story.commit();
    story.transaction();
    Call& waited = story.begin("execute", 20, 2);
    waited.invoked -= 3 * kSecond;
    story.look(20, {});
    story.complete_with_effect("a");
    story.commit();
    EXPECT_EQ(story.violated(), Wrong{23});
}

TEST(Sight, ASecondPartOfAGenerationIsASecondEffect) {
    Story story = failed_once();
    story.transaction().begin("execute", 20, 2);
    story.look(20, {});
    story.part("p2", PartKind::Once, 20);
    story.complete_with_effect("a");
    story.commit();
    EXPECT_EQ(story.violated(), (Wrong{1, 23}));
}

TEST(Sight, AnotherGenerationHasItsOwnParts) {
    Story story = failed_once();
    story.alone().call(Function::Forget).answer.yes = true;
    story.transaction().begin("execute", 20);
    story.look(20, {1});
    story.part("p2", PartKind::Once, 20, "later");
    story.complete_with_effect("a");
    story.commit();
    EXPECT_EQ(story.violated(), kNothing);
}

// But it sees those of the one before.
TEST(Sight, AfterForgettingToo) {
    Story story = failed_once();
    story.alone().call(Function::Forget).answer.yes = true;
    story.transaction().begin("execute", 20);
    story.look(20, {});
    story.complete_with_effect("a");
    story.commit();
    EXPECT_EQ(story.violated(), Wrong{23});
}

TEST(Sight, OnlyTheLastPartsAreLookedAt) {
    Story story;
    story.transaction().begin("execute", 10);
    for (const char* const id : {"p1", "p2", "p3", "p4"}) story.part(id, PartKind::Other, 10);
    fail(story);
    story.commit();
    story.transaction().begin("execute", 20, 2);
    story.look(20, {4, 3, 2});
    story.complete_with_effect("a");
    story.commit();
    EXPECT_EQ(story.violated(), kNothing);
    story.history().looks[0].latest = {4, 3, 1};
    EXPECT_EQ(story.violated(), Wrong{23});
}

TEST(Sight, ASessionWithoutALockNeedNotBeSeen) {
    Story story;
    story.transaction().begin("execute", 10);
    story.look(10, {});
    story.complete_with_effect("a");
    story.commit();
    story.alone().call(Function::Forget).answer.yes = true;
    story.transaction().begin("execute", 20);
    story.part("p1", PartKind::Once, 20);
    story.complete_with_effect("b");
    story.commit();
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Sight, APointThatStandsForNothingIsFound) {
    Story story = failed_once();
    story.transaction().begin("execute", 20, 2);
    story.look(20, {1}).point_seen = false;
    story.complete_with_effect("a");
    story.commit();
    EXPECT_EQ(story.violated(), Wrong{23});
}

// The holder of a lease of ten seconds commits work in a separate transaction, and is taken over.
Story taken_over(Micros works_after) {
    Story story;
    story.alone().begin("execute", 10);
    story.later(works_after).alone();
    story.part("a1", PartKind::Alone, 10);
    story.later(12 * kSecond).transaction().begin("execute", 20, 2);
    story.look(20, {});
    story.complete_with_effect("a");
    story.commit();
    return story;
}

TEST(Sight, WorkWithinTheLeaseIsSeen) {
    EXPECT_EQ(taken_over(0).violated(), Wrong{23});
}

TEST(Sight, WorkAfterTheLeaseNeedNotBe) {
    EXPECT_EQ(taken_over(15 * kSecond).violated(), kNothing);
}

// The holder's work after an operator's decision promises nothing to the next holder.
TEST(Sight, AnOperatorsDecisionDoesNotWait) {
    const auto story = [](bool works_first) {
        Story told;
        told.alone().begin("execute", 10);
        if (works_first) told.part("a1", PartKind::Alone, 10);
        Call& resolve = told.call(Function::Resolve);
        resolve.asked.action = "release";
        resolve.answer.yes = true;
        if (!works_first) told.part("a1", PartKind::Alone, 10);
        told.transaction().begin("execute", 20, 2);
        told.look(20, {});
        told.complete_with_effect("a");
        told.commit();
        return told.violated();
    };
    EXPECT_EQ(story(false), kNothing);
    EXPECT_EQ(story(true), Wrong{23});
}

TEST(Hold, EndsWithItsConnection) {
    const auto story = [](int connection_of_the_next) {
        Story told;
        Call& begin = told.alone().begin("execute", 10);
        begin.asked.hold = true;
        begin.session = begin.connection = 1;
        told.begin("execute", 20, 2);
        Call& later = told.call(Function::Get);
        later.key.key = "other";
        later.session = 1;
        later.connection = connection_of_the_next;
        return told.violated();
    };
    EXPECT_EQ(story(2), kNothing);
    EXPECT_EQ(story(1), Wrong{15});
}

TEST(Foreign, StandsAndFallsWithItsTransaction) {
    const auto story = [](bool there, Result commit, const char* sqlstate) {
        Story told;
        told.transaction().begin("execute", 10);
        told.call(Function::Foreign).asked.part = "f1";
        Call& end = told.commit(commit);
        end.sqlstate = sqlstate;
        if (there) told.history().foreign.push_back({"f1", 1});
        return told.violated();
    };
    EXPECT_EQ(story(true, Result::Ok, ""), kNothing);
    EXPECT_EQ(story(false, Result::Ok, ""), Wrong{14});
    EXPECT_EQ(story(false, Result::Error, "40001"), kNothing);
    EXPECT_EQ(story(false, Result::Error, "55P03"), Wrong{19});
    EXPECT_EQ(story(true, Result::Error, "55P03"), (Wrong{14, 19}));
    EXPECT_EQ(story(true, Result::Error, "40001"), kNothing);
    EXPECT_EQ(story(true, Result::Info, ""), kNothing);
}

TEST(Foreign, OfARollbackIsFound) {
    Story story;
    story.transaction().begin("execute", 10);
    story.call(Function::Foreign).asked.part = "f1";
    story.rollback();
    EXPECT_EQ(story.violated(), kNothing);
    story.history().foreign.push_back({"f1", 1});
    EXPECT_EQ(story.violated(), Wrong{14});
}

TEST(Closed, AnAnswerIsFound) {
    Story story;
    story.rules().closed = true;
    story.alone().error(Function::Begin, "42501");
    EXPECT_EQ(story.violated(), kNothing);
    story.begin("execute", 10);
    EXPECT_EQ(story.violated(), Wrong{24});
}

TEST(Errors, AnErrorOfATriggerComesBeforeTheCommit) {
    Story story;
    story.transaction().error(Function::Begin, "CH001");
    story.rollback();
    EXPECT_EQ(story.violated(), kNothing);
    Story late;
    late.transaction().begin("execute", 10);
    late.commit(Result::Error).sqlstate = "CH001";
    EXPECT_EQ(late.violated(), Wrong{19});
}

}  // namespace
}  // namespace idem::chaos
