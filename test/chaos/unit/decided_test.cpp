// A transaction decides, forgets or releases a key, and claims it itself or beside another
// session's claim.
#include "story.hpp"

namespace idem::chaos {
namespace {

using Wrong = std::set<int>;

Call& release(Story& story, std::int64_t token = 0) {
    Call& made = story.call(Function::Release);
    made.asked.token = token;
    made.answer.yes = true;
    return made;
}

Call& resolve(Story& story) {
    Call& made = story.call(Function::Resolve);
    made.asked.action = "release";
    made.answer.yes = true;
    return made;
}

Call& forget(Story& story) {
    Call& made = story.call(Function::Forget);
    made.answer.yes = true;
    return made;
}

Call& erase(Story& story, const std::string& answer) {
    Call& made = story.call(Function::Erase);
    made.answer.outcome = answer;
    return made;
}

TEST(Decided, WorkThatWasReleasedKeepsTheKey) {
    const auto story = [](bool works) {
        Story told;
        told.transaction().begin("execute", 10);
        if (works) told.part("p1", PartKind::Once, 10);
        release(told);
        told.transaction().begin("execute", 20);
        told.rollback();
        told.back_to(1).commit();
        return told.violated();
    };
    EXPECT_EQ(story(true), Wrong{5});
    EXPECT_EQ(story(false), kNothing);
}

TEST(Decided, AReopenedRecordHasNoResponse) {
    const auto story = [](const std::string& body, int status_code) {
        Story told;
        told.alone().begin("execute", 10);
        Call& fail = told.call(Function::Fail);
        fail.asked.token = 10;
        fail.asked.retryable = true;
        fail.asked.body = "declined";
        fail.asked.status_code = 402;
        fail.answer.yes = true;
        resolve(told);
        Call& seen = told.call(Function::Get);
        seen.answer.found = true;
        seen.answer.attempt = 1;
        seen.answer.status = "retryable";
        seen.answer.body = body;
        seen.answer.status_code = status_code;
        return told.violated();
    };
    EXPECT_EQ(story("", 0), kNothing);
    EXPECT_EQ(story("declined", 402), Wrong{8});
}

TEST(Decided, WorkThatWasReleasedIsSeen) {
    Story story;
    story.transaction().begin("execute", 10);
    story.part("p1", PartKind::Once, 10);
    release(story);
    story.commit();
    story.transaction().begin("execute", 20);
    story.look(20, {1});
    story.commit();
    EXPECT_EQ(story.violated(), kNothing);
    story.history().looks[0].latest.clear();
    EXPECT_EQ(story.violated(), Wrong{23});
}

TEST(Decided, WorkAfterAReleaseNeedNotBeSeen) {
    Story story;
    story.transaction().begin("execute", 10);
    release(story);
    story.part("p1", PartKind::Other, 0, "");
    story.commit();
    story.transaction().begin("execute", 20);
    story.look(20, {});
    story.commit();
    EXPECT_EQ(story.violated(), kNothing);
}

// The holder of a lease of ten seconds commits a part. `decide` and a claim of the key follow in
// one transaction, which does not see the part.
Story decided_on_an_old_snapshot(Call& (*decide)(Story&), int attempt, Micros works_after) {
    Story story;
    story.alone().begin("execute", 10);
    story.later(works_after).part("a1", PartKind::Alone, 10);
    story.later(20 * kSecond).transaction();
    decide(story);
    story.begin("execute", 20, attempt);
    story.look(20, {});
    story.commit();
    return story;
}

TEST(Decided, OnesOwnDecisionHidesNothing) {
    const auto release_by_token = [](Story& story) -> Call& { return release(story, 10); };
    EXPECT_EQ(decided_on_an_old_snapshot(resolve, 2, 0).violated(), Wrong{23});
    EXPECT_EQ(decided_on_an_old_snapshot(forget, 1, 0).violated(), Wrong{23});
    EXPECT_EQ(decided_on_an_old_snapshot(release_by_token, 1, 0).violated(), Wrong{23});
    EXPECT_EQ(decided_on_an_old_snapshot(resolve, 2, 30 * kSecond).violated(), kNothing);
}

TEST(Decided, ARemovalThatIsNotCommittedGuardsTheKey) {
    Story story;
    story.alone().begin("execute", 10);
    story.complete_with_effect("a", 10);
    story.transaction();
    const std::int64_t remover = forget(story).transaction;
    story.transaction().begin("execute", 20);
    story.rollback();
    EXPECT_TRUE(story.violated().count(5));
    story.back_to(remover).rollback();
    EXPECT_TRUE(story.violated().count(5));
}

TEST(Decided, AnErasureKeepsTheKeyToTheEndOfItsRetention) {
    for (const bool over : {false, true}) {
        Story story;
        story.alone().begin("execute", 10);
        story.complete_with_effect("a", 10);
        story.transaction();
        const std::int64_t eraser = erase(story, "done").transaction;
        if (over) story.later(2 * 3600 * kSecond);
        story.transaction().begin("execute", 20);
        story.complete_with_effect("b", 20);
        story.commit();
        story.alone().replay("b");
        story.back_to(eraser).commit();
        EXPECT_EQ(story.violated(), over ? kNothing : std::set<int>{5});
    }
}

TEST(Decided, WorkBesideAnErasureIsSeenUnlessTheRetentionMayEnd) {
    for (const bool lasts : {false, true}) {
        Story story;
        if (!lasts) story.rules().ttl = story.rules().retention = 5 * kSecond;
        story.alone().begin("execute", 10);
        story.complete_with_effect("a", 10);
        story.later(6 * kSecond);
        story.transaction();
        erase(story, "done");
        story.part("p", PartKind::Other, 0, "");
        story.commit();
        story.transaction().begin("execute", 20);
        story.look(20, {});
        story.rollback();
        EXPECT_EQ(story.violated().count(23), lasts ? 1 : 0);
    }
}

TEST(Decided, AnErasureIsUndoneWithItsSavepoint) {
    Story story;
    story.alone().begin("execute", 10);
    story.complete_with_effect("a", 10);
    story.transaction().call(Function::Savepoint).asked.savepoint = 1;
    erase(story, "done");
    story.call(Function::RollbackTo).asked.savepoint = 1;
    story.replay("a");
    story.commit();
    story.alone();
    erase(story, "running");
    erase(story, "done");
    erase(story, "passed");
    EXPECT_EQ(story.violated(), kNothing);
    story.replay("a");
    EXPECT_NE(story.violated(), kNothing);
}

TEST(Decided, AReleaseKeepsEarlierDecisionsOfItsTransaction) {
    Story story;
    story.alone().begin("execute", 10);
    story.transaction();
    resolve(story);
    story.begin("execute", 20, 2);
    release(story);
    story.call(Function::Prepare);
    story.call(Function::CommitPrepared);
    story.alone().begin("execute", 30, 2);
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Decided, ThePolicysDecisionIsUndoneWithItsTransaction) {
    Story story;
    story.rules().abandon_after = kSecond;
    story.rules().on_abandon = OnAbandon::Fail;
    story.alone().begin("execute", 10);
    story.later(20 * kSecond).transaction().call(Function::Cleanup);
    story.replay("").answer.error = kGivenUp;
    story.rollback();
    story.alone().complete_with_effect("a", 10);
    story.replay("a");
    EXPECT_EQ(story.violated(), kNothing);
    story.history().calls[3].function = Function::Commit;
    EXPECT_NE(story.violated(), kNothing);
}

// ---- forgetting ----

Call& forget_all(Story& story, bool complete) {
    Call& made = story.call(Function::ForgetAll);
    made.key = {"", "", ""};
    made.answer.yes = complete;
    return made;
}

Call& scan(Story& story, const std::string& secrets) {
    Call& made = story.call(Function::Scan);
    made.key = {"", "", ""};
    made.answer.outcome = secrets;
    return made;
}

TEST(Forgotten, CompleteMeansThatNothingIsLeft) {
    const auto story = [](bool complete, int attempt) {
        Story told;
        told.alone().begin("execute", 10);
        told.later(20 * kSecond);
        forget_all(told, complete);
        told.begin("execute", 20, attempt);
        return told.violated();
    };
    EXPECT_EQ(story(true, 1), kNothing);
    EXPECT_NE(story(true, 2), kNothing);
    EXPECT_EQ(story(false, 1), kNothing);
    EXPECT_EQ(story(false, 2), kNothing);
}

// The first scan may meet the record, and the second one a record that came meanwhile; there is no
// third.
TEST(Forgotten, TheCallScansTwice) {
    const auto story = [](int executions) {
        Story told;
        told.alone().begin("execute", 10);
        told.complete("body-10", 10);
        told.later(20 * kSecond);
        forget_all(told, true);
        const std::size_t forgetting = told.history().calls.size() - 1;
        for (int token = 20; token < 20 + executions; ++token) {
            told.begin("execute", token);
            told.complete("body-" + std::to_string(token), token);
        }
        told.begin("replay");
        told.history().calls[forgetting].returned = told.history().calls.back().returned;
        told.history().calls.pop_back();
        return told.violated();
    };
    EXPECT_EQ(story(1), kNothing);
    EXPECT_EQ(story(2), kNothing);
    EXPECT_NE(story(3), kNothing);
}

TEST(Forgotten, ARunningExecutionIsNotSkipped) {
    const auto story = [](bool complete) {
        Story told;
        told.alone().begin("execute", 10);
        told.later(20 * kSecond).transaction().begin("execute", 20, 2);
        told.alone();
        forget_all(told, complete);
        told.back_to(2).commit();
        return told.violated();
    };
    EXPECT_EQ(story(false), kNothing);
    EXPECT_NE(story(true), kNothing);
}

TEST(Forgotten, EarlierRecordsAreGone) {
    Story story;
    story.alone().begin("execute", 10).asked.secret = "secret-1";
    story.later(20 * kSecond);
    scan(story, "secret-1");
    forget_all(story, true);
    story.begin("execute", 20).asked.secret = "secret-2";
    scan(story, "secret-2");
    EXPECT_EQ(story.violated(), kNothing);
    scan(story, "secret-2 secret-1");
    EXPECT_EQ(story.violated(), Wrong{25});
}

// The call waits for every transaction that had a claim when it began, and scans again. So it is
// complete only if the claims of such a transaction are gone too.
TEST(Forgotten, ClaimsThatWereOpenAreWaitedFor) {
    const auto story = [](bool complete, bool open_before) {
        Story told;
        told.transaction();
        if (open_before) told.begin("execute", 10).asked.secret = "secret-1";
        told.alone();
        forget_all(told, complete);
        told.back_to(1);
        if (!open_before) told.begin("execute", 10).asked.secret = "secret-1";
        told.commit();
        told.back_to(2).alone();
        scan(told, "secret-1");
        return told.violated();
    };
    EXPECT_EQ(story(true, false), kNothing);
    EXPECT_EQ(story(false, true), kNothing);
    EXPECT_EQ(story(true, true), Wrong{25});
}

TEST(Forgotten, OneKeyIsEnough) {
    const auto story = [](bool commits) {
        Story told;
        told.alone().begin("execute", 10).asked.secret = "secret-1";
        told.later(20 * kSecond).transaction();
        erase(told, "done");
        commits ? told.commit() : told.rollback();
        told.alone();
        scan(told, "secret-1");
        return told.violated();
    };
    EXPECT_EQ(story(false), kNothing);
    EXPECT_EQ(story(true), Wrong{25});
}

}  // namespace
}  // namespace idem::chaos
