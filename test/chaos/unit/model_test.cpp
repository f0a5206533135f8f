// The special rules of this protocol: what the model must accept, and what not.
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

TEST(Model, AReplayToAnotherPayloadIsNone) {
    Story story;
    story.alone().begin("execute", 10).asked.fingerprint = 1;
    story.complete_with_effect("a", 10);
    story.replay("a").asked.fingerprint = 2;
    EXPECT_EQ(story.violated(), Wrong{2});
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

TEST(Model, AClaimReleasedBeforePrepareLeavesTheKeyFree) {
    Story story;
    story.transaction().begin("execute", 10);
    story.call(Function::Release).answer.yes = true;
    story.call(Function::Prepare);
    story.transaction().begin("execute", 20);
    story.rollback();
    story.back_to(1).call(Function::CommitPrepared);
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

// The new primary lacks the second key's answer, but has the first one's.
TEST(Model, AForgetfulFailoverLosesRecordAndEffectTogether) {
    Story story;
    story.transaction().begin("execute", 10);
    story.complete_with_effect("a");
    story.commit();
    story.key("lost").transaction().begin("execute", 11);
    story.complete_with_effect("b");
    story.commit();
    story.history().effects.pop_back();
    story.history().forgetful_failovers = {story.history().calls.back().returned + 1};
    story.key("k").alone().replay("a");
    story.key("lost").begin("execute", 20);
    EXPECT_EQ(story.violated(), kNothing);
    story.replay("b");
    EXPECT_FALSE(story.violated().empty());
}

// The old primary had ended the session already; its client noticed it later than the failover.
TEST(Model, ATransactionThatAFailoverCutsOffMayHaveEndedBefore) {
    Story story;
    story.transaction().begin("execute", 10);
    story.complete_with_effect("a");
    story.commit();
    story.transaction().call(Function::Forget).answer.yes = true;
    const std::int64_t cut_off = story.history().calls.back().transaction;
    story.transaction().call(Function::Forget).answer.yes = true;
    story.rollback();
    story.history().forgetful_failovers = {story.history().calls.back().returned + 1};
    story.back_to(cut_off).commit(Result::Info);
    EXPECT_EQ(story.violated(), kNothing);
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

// ---- records that age does not remove, and releases ----

Call& fail_retryable(Story& story, std::int64_t token = 0) {
    Call& made = story.call(Function::Fail);
    made.asked.retryable = true;
    made.asked.retry_after = 0;
    made.asked.token = token;
    made.answer.yes = true;
    return made;
}

TEST(Undecided, ARecoveryPointOutlivesTheRetention) {
    const auto story = [](int attempt, const char* point) {
        Story told;
        told.rules().ttl = told.rules().retention = 5 * kSecond;
        told.transaction().begin("execute", 10);
        told.call(Function::Checkpoint).asked.point = "half";
        fail_retryable(told);
        told.commit();
        told.later(60 * kSecond).alone().begin("execute", 20, attempt).answer.point = point;
        return told.violated();
    };
    EXPECT_EQ(story(2, "half"), kNothing);
    EXPECT_EQ(story(1, ""), Wrong{16});
}

// A later attempt that names no ttl, such as a worker's, goes on with that of the caller.
TEST(Ttl, OfTheAttemptBeforeGoesOn) {
    const auto story = [](Micros later, const char* outcome, Micros ttl) {
        Story told;
        told.rules().ttl = told.rules().retention = 5 * kSecond;
        told.transaction().begin("execute", 10).asked.ttl = 100 * kSecond;
        fail_retryable(told);
        told.commit();
        told.transaction().begin("execute", 20, 2).asked.ttl = ttl;
        told.complete("done");
        told.commit();
        told.later(later).alone();
        if (std::string(outcome) == "replay")
            told.replay("done", 2);
        else
            told.begin(outcome, 30);
        return told.violated();
    };
    EXPECT_EQ(story(60 * kSecond, "replay", 0), kNothing);
    EXPECT_EQ(story(60 * kSecond, "execute", 0), Wrong{4});
    EXPECT_EQ(story(200 * kSecond, "execute", 0), kNothing);
    EXPECT_EQ(story(200 * kSecond, "replay", 0), Wrong{2});
    // A shorter one ends the replay sooner, and not the memory.
    EXPECT_EQ(story(60 * kSecond, "replay", 20 * kSecond), Wrong{2});
    EXPECT_EQ(story(60 * kSecond, "execute", 20 * kSecond), Wrong{4});
    EXPECT_EQ(story(60 * kSecond, "expired", 20 * kSecond), kNothing);
}

TEST(Exhausted, StaysForItsRetentionAndNeverExpires) {
    const auto story = [](Micros later, const char* outcome) {
        Story told;
        told.rules().ttl = 5 * kSecond;
        told.rules().retention = 100 * kSecond;
        told.rules().max_attempts = 1;
        told.transaction().begin("execute", 10);
        fail_retryable(told);
        told.commit();
        told.later(later).alone().begin(outcome, 20);
        return told.violated();
    };
    EXPECT_EQ(story(60 * kSecond, "exhausted"), kNothing);
    EXPECT_EQ(story(60 * kSecond, "execute"), Wrong{16});
    EXPECT_EQ(story(60 * kSecond, "expired"), Wrong{13});
    EXPECT_EQ(story(200 * kSecond, "execute"), kNothing);
    EXPECT_EQ(story(200 * kSecond, "exhausted"), Wrong{13});
}

// One attempt, whose holder has timed out.
Story silent_for_good() {
    Story story;
    story.rules().max_attempts = 1;
    story.alone().begin("execute", 10);
    story.later(60 * kSecond).begin("exhausted");
    return story;
}

TEST(Exhausted, OfSilenceHasNoLeaseAndTakesAResult) {
    for (const Function function : {Function::Extend, Function::Checkpoint, Function::Release}) {
        Story story = silent_for_good();
        story.error(function, "55000", 10);
        story.complete_with_effect("a", 10);
        story.replay("a");
        EXPECT_EQ(story.violated(), kNothing);
    }
}

TEST(Exhausted, OfSilenceIsStoredOnceAndForAll) {
    Story story = silent_for_good();
    story.error(Function::Extend, "55000", 10);
    story.call(Function::Extend).asked.token = 10;
    EXPECT_NE(story.violated(), kNothing);
}

TEST(Exhausted, TheLastFailureIsAnEnd) {
    const auto story = [](const char* sqlstate) {
        Story told;
        told.rules().max_attempts = 1;
        told.transaction().begin("execute", 10);
        fail_retryable(told);
        told.commit();
        told.alone().error(Function::Extend, sqlstate, 10);
        told.complete("a", 10, false);
        return told.violated();
    };
    EXPECT_EQ(story("ID409"), kNothing);
    EXPECT_EQ(story("55000"), Wrong{12});
}

Call& end_unknown(Story& story, std::int64_t token, bool yes = true) {
    Call& call = story.call(Function::Unknown);
    call.asked.token = token;
    call.answer.yes = yes;
    return call;
}

TEST(Unknown, IsNeverExecutedAgainUntilItIsEnded) {
    const auto story = [](const char* outcome) {
        Story told;
        told.rules().abandon_after = kSecond;
        told.rules().on_abandon = OnAbandon::Release;
        told.alone().begin("execute", 10);
        end_unknown(told, 10);
        end_unknown(told, 10, false);
        told.later(60 * kSecond).begin(outcome, 20, 2);
        return told.violated();
    };
    EXPECT_EQ(story("unknown"), kNothing);
    EXPECT_EQ(story("execute"), Wrong{15});
}

TEST(Unknown, ItsTokenEndsItAndHasNoLease) {
    Story story;
    story.alone().begin("execute", 10);
    end_unknown(story, 10);
    for (const Function function : {Function::Extend, Function::Checkpoint, Function::Release})
        story.error(function, "55000", 10);
    story.error(Function::Fail, "55000", 10).asked.retryable = true;
    story.complete_with_effect("a", 10);
    end_unknown(story, 10, false);
    story.replay("a");
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Unknown, MakesNoRoomForARetry) {
    Story story;
    story.alone().begin("execute", 10);
    end_unknown(story, 10);
    Call& fail = story.call(Function::Fail);
    fail.asked.token = 10;
    fail.asked.retryable = true;
    fail.answer.yes = true;
    EXPECT_NE(story.violated(), kNothing);
}

TEST(Unknown, MayBeEndedInItsTransaction) {
    Story story;
    story.transaction().begin("execute", 10);
    end_unknown(story, 0);
    story.complete_with_effect("a");
    story.commit();
    story.alone().replay("a");
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Reopening, IsForFailedRecords) {
    const auto story = [](bool fails, Result result) {
        Story told;
        told.alone().begin("execute", 10);
        Call& end = fails ? told.call(Function::Fail) : told.complete("a", 10);
        end.asked.token = 10;
        end.answer.yes = true;
        Call& reopen = told.call(Function::Resolve);
        reopen.asked.action = "reopen";
        reopen.result = result;
        if (result == Result::Error) reopen.sqlstate = "55000";
        if (result == Result::Ok) told.begin("execute", 20, 2);
        return told.violated();
    };
    EXPECT_EQ(story(true, Result::Ok), kNothing);
    EXPECT_NE(story(true, Result::Error), kNothing);
    EXPECT_NE(story(false, Result::Ok), kNothing);
    EXPECT_EQ(story(false, Result::Error), kNothing);
}

TEST(Undecided, CrashesAreBoundedToo) {
    const auto story = [](const char* outcome, int attempt) {
        Story told;
        told.rules().max_attempts = 1;
        told.alone().begin("execute", 10);
        told.later(60 * kSecond).begin(outcome, 20, attempt);
        return told.violated();
    };
    EXPECT_EQ(story("exhausted", 1), kNothing);
    EXPECT_EQ(story("execute", 2), Wrong{15});
}

TEST(Release, InItsTransactionLeavesTheRecord) {
    Story story;
    story.alone().begin("execute", 10);
    story.later(60 * kSecond).transaction().begin("execute", 20, 2);
    story.call(Function::Checkpoint).asked.point = "half";
    story.call(Function::Release).answer.yes = true;
    story.commit();
    story.alone().begin("execute", 30, 2);
    EXPECT_EQ(story.violated(), kNothing);
}

TEST(Release, ATokenThatWasGivenBackIsDead) {
    const auto story = [](Result result) {
        Story told;
        told.alone().begin("execute", 10);
        told.later(60 * kSecond).begin("execute", 20, 2);
        Call& release = told.call(Function::Release);
        release.asked.token = 20;
        release.answer.yes = true;
        if (result == Result::Error)
            told.error(Function::Complete, "ID409", 20);
        else
            told.complete("a", 20, false);
        return told.violated();
    };
    EXPECT_EQ(story(Result::Error), kNothing);
    EXPECT_NE(story(Result::Ok), kNothing);
}

TEST(EarlyRows, MayBeTakenOverALeaseAfterTheClaim) {
    const auto story = [](bool early) {
        Story told;
        told.history().early_rows = early;
        told.transaction().begin("execute", 10);
        told.later(20 * kSecond).commit();
        told.alone().begin("execute", 20, 2);
        return told.violated();
    };
    EXPECT_EQ(story(true), kNothing);
    EXPECT_EQ(story(false), Wrong{15});
}

// A leased claim that its policy abandons after ten seconds more, and the calls afterwards.
Story left_alone(OnAbandon what) {
    Story story;
    story.rules().abandon_after = 10 * kSecond;
    story.rules().on_abandon = what;
    story.alone().begin("execute", 10);
    return story;
}

TEST(Abandonment, FailsForGood) {
    const auto story = [](Micros later, const char* error) {
        Story told = left_alone(OnAbandon::Fail);
        told.later(later).replay("").answer.error = error;
        return told.violated();
    };
    EXPECT_EQ(story(30 * kSecond, kGivenUp), kNothing);
    EXPECT_NE(story(30 * kSecond, "it did not work"), kNothing);
    EXPECT_EQ(story(15 * kSecond, kGivenUp), Wrong{2});
}

TEST(Abandonment, NeedsAPolicyThatSaysSo) {
    const auto story = [](OnAbandon what, Micros after) {
        Story told = left_alone(what);
        told.rules().abandon_after = after;
        told.later(30 * kSecond).replay("").answer.error = kGivenUp;
        return told.violated();
    };
    EXPECT_EQ(story(OnAbandon::Fail, kSecond), kNothing);
    EXPECT_NE(story(OnAbandon::Fail, 0), kNothing);
    EXPECT_NE(story(OnAbandon::Release, kSecond), kNothing);
    EXPECT_NE(story(OnAbandon::Unknown, kSecond), kNothing);
}

TEST(Abandonment, LeavesTheTokenGoodForNothing) {
    const auto story = [](OnAbandon what, Micros later, Result result) {
        Story told = left_alone(what);
        told.later(later);
        if (result == Result::Error)
            told.error(Function::Complete, "ID409", 10);
        else
            told.complete("a", 10);
        return told.violated();
    };
    for (const OnAbandon what : {OnAbandon::Fail, OnAbandon::Release}) {
        EXPECT_EQ(story(what, 30 * kSecond, Result::Error), kNothing);
        EXPECT_EQ(story(what, 15 * kSecond, Result::Error), Wrong{12});
        EXPECT_EQ(story(what, 30 * kSecond, Result::Ok), kNothing);  // no sweeper or caller came
    }
    // The holder may still end an unknown attempt.
    EXPECT_EQ(story(OnAbandon::Unknown, 30 * kSecond, Result::Error), Wrong{12});
    EXPECT_EQ(story(OnAbandon::Unknown, 30 * kSecond, Result::Ok), kNothing);
}

TEST(Abandonment, IsOverWithTheTokenThatItHasRefused) {
    Story story = left_alone(OnAbandon::Release);
    story.later(30 * kSecond).error(Function::Complete, "ID409", 10);
    story.complete("a", 10);
    EXPECT_EQ(story.violated(), Wrong{7});
}

TEST(Abandonment, OfAFreedClaimOthersExecute) {
    const auto story = [](const char* outcome) {
        Story told = left_alone(OnAbandon::Release);
        Call& seen = told.later(30 * kSecond).call(Function::Get);
        seen.answer.found = true;
        seen.answer.attempt = 1;
        seen.answer.status = "retryable";
        seen.answer.error = kGivenUp;
        told.begin(outcome, 20, outcome == std::string("execute") ? 2 : 1);
        return told.violated();
    };
    EXPECT_EQ(story("execute"), kNothing);
    EXPECT_NE(story("retry_later"), kNothing);
}

TEST(Abandonment, OfTheLastAttemptFreesNothing) {
    const auto story = [](const char* outcome, const char* status, const char* error) {
        Story told = left_alone(OnAbandon::Release);
        told.rules().max_attempts = 1;
        Call& seen = told.later(30 * kSecond).call(Function::Get);
        seen.answer.found = true;
        seen.answer.attempt = 1;
        seen.answer.status = status;
        seen.answer.error = error;
        told.begin(outcome, 20, outcome == std::string("execute") ? 2 : 1);
        return told.violated();
    };
    EXPECT_EQ(story("exhausted", "exhausted", ""), kNothing);
    EXPECT_NE(story("execute", "exhausted", ""), kNothing);
    EXPECT_NE(story("exhausted", "retryable", kGivenUp), kNothing);
}

TEST(Abandonment, IsShownUntilTheNextAttemptHasEnded) {
    const auto story = [](Function end, const char* error) {
        Story told = left_alone(OnAbandon::Release);
        told.later(30 * kSecond).begin("execute", 20, 2);
        Call& ended = told.call(end);
        ended.asked.token = 20;
        ended.asked.retryable = true;
        ended.answer.yes = true;
        Call& seen = told.call(Function::Get);
        seen.answer.found = true;
        seen.answer.attempt = end == Function::Release ? 1 : 2;
        seen.answer.status = "retryable";
        seen.answer.error = error;
        return told.violated();
    };
    EXPECT_EQ(story(Function::Release, kGivenUp), kNothing);
    EXPECT_EQ(story(Function::Fail, "it did not work"), kNothing);
    EXPECT_EQ(story(Function::Fail, kGivenUp), Wrong{8});
}

TEST(Abandonment, OfADoubtedClaimForbidsATakeover) {
    const auto story = [](Micros later, const char* first, const char* second) {
        Story told = left_alone(OnAbandon::Unknown);
        told.later(later);
        for (const char* outcome : {first, second})
            told.begin(outcome, 20, outcome == std::string("execute") ? 2 : 1);
        return told.violated();
    };
    EXPECT_EQ(story(30 * kSecond, "unknown", "unknown"), kNothing);
    EXPECT_EQ(story(30 * kSecond, "execute", "in_progress"), Wrong{13});  // of the second attempt
    EXPECT_EQ(story(15 * kSecond, "unknown", "unknown"), Wrong{13});
    EXPECT_EQ(story(30 * kSecond, "unknown", "execute"), Wrong{15});
}

TEST(Abandonment, CountsFromTheLeaseThatWasProlonged) {
    const auto story = [](Micros later) {
        Story told = left_alone(OnAbandon::Fail);
        told.later(8 * kSecond).call(Function::Extend).asked.token = 10;
        told.later(later).replay("").answer.error = kGivenUp;
        return told.violated();
    };
    EXPECT_EQ(story(15 * kSecond), Wrong{2});
    EXPECT_EQ(story(25 * kSecond), kNothing);
}

TEST(Abandonment, ATakeoverThatCameFirstWins) {
    Story story = left_alone(OnAbandon::Fail);
    story.later(15 * kSecond).begin("execute", 20, 2);
    story.later(8 * kSecond).replay("").answer.error = kGivenUp;
    EXPECT_EQ(story.violated(), Wrong{2});
}

TEST(Abandonment, LeavesClaimsOfTransactionsAlone) {
    const auto story = [](bool ended) {
        Story told = left_alone(OnAbandon::Fail);
        told.later(15 * kSecond).transaction().begin("execute", 20, 2);
        if (ended) told.rollback();
        told.later(60 * kSecond).alone().replay("").answer.error = kGivenUp;
        if (!ended) told.back_to(2).commit();
        return told.violated();
    };
    EXPECT_EQ(story(true), kNothing);
    EXPECT_EQ(story(false), Wrong{2});
}

TEST(Abandonment, WaitsForASessionThatHolds) {
    const auto story = [](bool hold) {
        Story told = left_alone(OnAbandon::Fail);
        Call& begun = told.history().calls.back();
        begun.asked.hold = hold;
        begun.connection = 1;
        told.later(30 * kSecond).replay("").answer.error = kGivenUp;
        Call& later = told.later(30 * kSecond).key("other").begin("execute", 10);
        later.connection = 1;
        return told.violated();
    };
    EXPECT_EQ(story(false), kNothing);
    EXPECT_EQ(story(true), Wrong{2});
}

}  // namespace
}  // namespace idem::chaos
