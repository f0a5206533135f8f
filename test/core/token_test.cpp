#include "core/token.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace idem::core {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();

constexpr std::int64_t kNow = 849'000'000'000'000;  // in November 2026

TEST(TokenTime, IsTheTime) {
    EXPECT_EQ(token_time(kNow, 0), kNow);
    EXPECT_EQ(token_time(kNow, kNow - 1), kNow);
}

TEST(TokenTime, NeverComesTwice) {
    EXPECT_EQ(token_time(kNow, kNow), kNow + 1);
    EXPECT_EQ(token_time(kNow - 1'000'000, kNow), kNow + 1);
}

TEST(TokenTime, IsPositive) {
    for (const std::int64_t now : {std::int64_t{0}, -kNow, kSmallest}) {
        EXPECT_GT(token_time(now, 0), 0);
        EXPECT_GT(token_time(now, kSmallest), 0);
    }
}

TEST(TokenTime, SaturatesAtTheEndOfTime) {
    EXPECT_EQ(token_time(kLargest, 0), kLargest);
    EXPECT_EQ(token_time(kNow, kLargest), kLargest);
}

TEST(NextToken, IsTheTimeWhereThatIsGreater) {
    EXPECT_EQ(next_token(kNow, 12345, 0), kNow);
    EXPECT_EQ(next_token(kNow, 12345, kNow - 1), kNow);
}

TEST(NextToken, StaysWhereAJsonNumberIsExact) {
    constexpr std::int64_t kYear2284 = std::int64_t{284} * 365 * 86400 * 1'000'000;
    EXPECT_LT(next_token(kYear2284, 0, 0), std::int64_t{1} << 53);
}

TEST(NextToken, StepsAtRandomPastARecordThatIsAheadOfTheClock) {
    const std::int64_t ahead = kNow + 1'000'000;
    EXPECT_EQ(next_token(kNow, 0, ahead), ahead + 1);
    EXPECT_EQ(next_token(kNow, 41, ahead), ahead + 42);
    EXPECT_EQ(next_token(kNow, 0xffff0029, ahead), ahead + 42);
    EXPECT_EQ(next_token(ahead, 41, ahead), ahead + 42);
}

TEST(NextToken, SaturatesAtTheEndOfTime) {
    EXPECT_EQ(next_token(kNow, 7, kLargest - 1), kLargest);
}

TEST(NextToken, AlwaysGrowsUnderAWildClock) {
    std::mt19937 generator(20240229);
    std::uniform_int_distribution<std::int64_t> step(-1000, 1000);
    std::int64_t clock = kNow;
    std::int64_t last = 0;
    std::int64_t previous = 0;
    for (int i = 0; i < 10000; ++i) {
        clock += step(generator);
        const std::int64_t time = token_time(clock, last);
        const std::int64_t token = next_token(time, generator(), previous);
        ASSERT_GT(time, last);
        ASSERT_GT(token, previous);
        ASSERT_GE(token, clock);
        last = time;
        previous = token;
    }
}

}  // namespace
}  // namespace idem::core
