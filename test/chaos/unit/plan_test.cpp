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
          static_cast<std::int64_t>(plan.finish), static_cast<std::int64_t>(plan.status_code)})
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
        shortest = std::min(shortest, plan.lease);
        longest = std::max(longest, plan.lease);
    }
    EXPECT_EQ(shapes.size(), 7u);
    EXPECT_EQ(endings.size(), 5u);
    EXPECT_EQ(finishes.size(), 5u);
    EXPECT_EQ(words.size(), 3u + 4u);
    EXPECT_TRUE(sizes.count(0) && sizes.count(mix.body_limit) && sizes.count(mix.body_limit + 1));
    EXPECT_LT(shortest, 2 * kMillisecond);
    EXPECT_GT(longest, 9 * kSecond);
}

TEST(Plan, WithoutHarmNobodyHangsUp) {
    Mix mix;
    mix.harm = false;
    for (int turn = 0; turn < kTurns; ++turn) {
        const Plan plan = draw_plan(mix, 1, 1, turn);
        EXPECT_NE(plan.finish, Finish::HangUp);
        EXPECT_EQ(plan.statement_timeout, 0);
    }
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
