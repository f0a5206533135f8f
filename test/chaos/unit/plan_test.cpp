// A seed repeats a run's choices, and the choices leave nothing out.
#include "load/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace idem::chaos {
namespace {

constexpr int kTurns = 3000;

std::string text_of(const Plan& plan) {
    std::string text = std::to_string(static_cast<int>(plan.shape)) + plan.isolation + plan.action;
    for (const Key& key : plan.keys) text += "|" + key.scope + "|" + key.principal + "|" + key.key;
    for (const std::int64_t number :
         {plan.lease, plan.wait, plan.pause, plan.body_size,
          static_cast<std::int64_t>(plan.fingerprint), static_cast<std::int64_t>(plan.ending),
          static_cast<std::int64_t>(plan.finish), static_cast<std::int64_t>(plan.status_code),
          static_cast<std::int64_t>(plan.reset), static_cast<std::int64_t>(plan.group),
          plan.snapshot_age})
        text += "|" + std::to_string(number);
    return text;
}

TEST(Plan, DependsOnSeedSessionAndTurnAlone) {
    const Mix mix;
    const std::string plan = text_of(draw_plan(mix, 7, 3, 100));
    (void)draw_plan(mix, 7, 4, 1);
    EXPECT_EQ(text_of(draw_plan(mix, 7, 3, 100)), plan);
    EXPECT_NE(text_of(draw_plan(mix, 8, 3, 100)), plan);
    EXPECT_NE(text_of(draw_plan(mix, 7, 4, 100)), plan);
    EXPECT_NE(text_of(draw_plan(mix, 7, 3, 101)), plan);
}

TEST(Plan, LeavesNothingOut) {
    const Mix mix;
    std::set<Shape> shapes;
    std::set<Ending> endings;
    std::set<Finish> finishes;
    std::set<std::string> words;
    std::set<Reset> resets;
    std::set<std::string> dependent;  // isolation levels of work that depends on what it sees
    bool sums = false;
    bool one_statement = false;
    std::set<std::int64_t> sizes;
    Micros shortest = kNever;
    Micros longest = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
        const Plan plan = draw_plan(mix, 1, 1, turn);
        shapes.insert(plan.shape);
        endings.insert(plan.ending);
        finishes.insert(plan.finish);
        words.insert(plan.isolation);
        words.insert(plan.action);
        sizes.insert(plan.body_size);
        resets.insert(plan.reset);
        const std::string waits = plan.wait > 0 ? " and waits" : "";
        if (plan.looks) dependent.insert(plan.isolation + waits);
        sums = sums || plan.sums;
        one_statement = one_statement || (plan.one_statement && plan.shape == Shape::Execute);
        EXPECT_FALSE(plan.sums && plan.isolation != std::string("SERIALIZABLE"));
        shortest = std::min(shortest, plan.lease);
        longest = std::max(longest, plan.lease);
    }
    EXPECT_EQ(shapes.size(), 9u);
    EXPECT_EQ(endings.size(), 6u);
    EXPECT_EQ(finishes.size(), 5u);
    EXPECT_EQ(words.size(), 3u + 6u);
    EXPECT_EQ(resets.size(), 3u);
    EXPECT_EQ(dependent.size(), 6u);
    EXPECT_TRUE(sums && one_statement);
    EXPECT_TRUE(sizes.count(0) && sizes.count(mix.body_limit) && sizes.count(mix.body_limit + 1));
    EXPECT_LT(shortest, 2 * kMillisecond);
    EXPECT_GT(longest, 9 * kSecond);
}

TEST(Plan, WithoutHarmNoClientHangsUp) {
    Mix mix;
    mix.harm = false;
    for (int turn = 0; turn < kTurns; ++turn) {
        const Plan plan = draw_plan(mix, 1, 1, turn);
        EXPECT_NE(plan.finish, Finish::HangUp);
        EXPECT_EQ(plan.statement_timeout, 0);
    }
}

TEST(Plan, RelayedKeysAreMostlyWaitedFor) {
    const Mix mix;
    const std::vector<Key> relayed = relay_keys();
    int all = 0;
    int waiting = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
        const Plan plan = draw_plan(mix, 1, 1, turn);
        if (std::find(relayed.begin(), relayed.end(), plan.keys[0]) == relayed.end()) continue;
        ++all;
        waiting += plan.wait > 0;
        EXPECT_TRUE(plan.looks);
    }
    EXPECT_GT(all, kTurns / 8);
    EXPECT_GT(waiting, all / 2);
}

TEST(Plan, SomeHoldersNeverComeBack) {
    const std::map<std::string, Rules> rules = scopes();
    std::set<OnAbandon> decided;
    std::set<Key> keys;
    int all = 0;
    int left = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
        const Plan plan = draw_plan(Mix{}, 1, 1, turn);
        const Rules& of_scope = rules.at(plan.keys[0].scope);
        if (of_scope.abandon_after == 0) continue;
        ++all;
        left += plan.shape == Shape::Leased && plan.ending == Ending::LeaveOpen;
        decided.insert(of_scope.on_abandon);
        keys.insert(plan.keys[0]);
    }
    EXPECT_GT(all, kTurns / 8);
    EXPECT_GT(left, all / 10);
    EXPECT_EQ(decided.size(), 3u);
    EXPECT_GT(keys.size(), static_cast<std::size_t>(kTurns / 16));
}

// In each isolation level, with and without a snapshot from before, and in savepoints.
TEST(Plan, SomeDecideAboutTheirOwnClaims) {
    std::map<Decision, std::set<std::string>> ways;
    std::set<std::string> principals;
    int all = 0;
    int undone = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
        const Plan plan = draw_plan(Mix{}, 1, 1, turn);
        if (plan.keys[0].scope != "decided") continue;
        ++all;
        principals.insert(plan.keys[0].principal);
        if (plan.shape != Shape::Decide || !plan.claims_after) continue;
        undone += plan.undo_decision;
        ways[plan.decision].insert(plan.isolation + std::string(plan.old_snapshot ? " old" : ""));
    }
    EXPECT_GT(all, kTurns / 6);
    EXPECT_LT(all, kTurns / 4);
    EXPECT_GT(undone, 0);
    EXPECT_EQ(ways.size(), 7u);
    for (const auto& [decision, isolations] : ways)
        EXPECT_GE(isolations.size(), 5u) << static_cast<int>(decision);
    EXPECT_GT(principals.size(), static_cast<std::size_t>(kTurns / 60));
}

TEST(Plan, AForeignServerIsNotPrepared) {
    Mix mix;
    mix.foreign = true;
    int foreign = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
        const Plan plan = draw_plan(mix, 1, 1, turn);
        foreign += plan.foreign;
        EXPECT_FALSE(plan.foreign && (plan.finish == Finish::PrepareCommit ||
                                      plan.finish == Finish::PrepareRollback));
    }
    EXPECT_GT(foreign, 0);
}

TEST(Plan, HotKeysDifferAndLookAlike) {
    Mix mix;
    mix.hot_keys = 50;
    const std::vector<Key> keys = hot_keys(mix);
    EXPECT_EQ(std::set<Key>(keys.begin(), keys.end()).size(), 50u);
    const auto has = [&](const Key& key) {
        return std::find(keys.begin(), keys.end(), key) != keys.end();
    };
    EXPECT_TRUE(has({"keep", "acme", "order"}) && has({"keep", "acme", "Order"}));
}

}  // namespace
}  // namespace idem::chaos
