#include "core/token.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace idem::core {
namespace {

constexpr std::int64_t kMillis = 1'700'000'000'000;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::uint32_t kRandomMask = (1u << kTokenRandomBits) - 1;

std::int64_t millis_of(std::int64_t token) {
    return token >> kTokenRandomBits;
}
std::uint32_t random_of(std::int64_t token) {
    return static_cast<std::uint32_t>(token) & kRandomMask;
}

TEST(NextToken, IsMillisecondsAboveRandomBits) {
    const std::int64_t token = next_token(kMillis, 0xabcde, 0);
    EXPECT_EQ(millis_of(token), kMillis);
    EXPECT_EQ(random_of(token), 0xabcdeu);
}

TEST(NextToken, UsesTwentyRandomBitsOnly) {
    EXPECT_EQ(next_token(kMillis, 0xffffffff, 0), next_token(kMillis, 0xfffff, 0));
    EXPECT_EQ(next_token(kMillis, 0xfff00000, 0), next_token(kMillis, 0, 0));
}

TEST(NextToken, GrowsWithinAMillisecond) {
    const std::int64_t first = next_token(kMillis, 500, 0);
    EXPECT_EQ(next_token(kMillis, 501, first), first + 1);
    for (const std::uint32_t random : {500u, 499u, 0u}) {
        const std::int64_t next = next_token(kMillis, random, first);
        EXPECT_GT(next, first);
        EXPECT_EQ(millis_of(next), kMillis + 1);
        EXPECT_EQ(random_of(next), random);
    }
}

TEST(NextToken, GrowsWhenTheClockStepsBackAndStaysRandom) {
    const std::int64_t first = next_token(kMillis, 500, 0);
    for (const std::int64_t earlier : {kMillis - 1, kMillis / 2, std::int64_t{0}, -kMillis}) {
        const std::int64_t next = next_token(earlier, 7, first);
        EXPECT_GT(next, first);
        EXPECT_EQ(random_of(next), 7u);
    }
}

TEST(NextToken, IsPositiveForAnyFirstClaim) {
    EXPECT_GT(next_token(0, 0, 0), 0);
    EXPECT_GT(next_token(-kMillis, 0, 0), 0);
    EXPECT_GT(next_token(std::numeric_limits<std::int64_t>::min(), 0, 0), 0);
    EXPECT_GT(next_token(0, 0, std::numeric_limits<std::int64_t>::min()), 0);
}

TEST(NextToken, SaturatesAtTheEndOfTime) {
    EXPECT_GT(next_token(kLargest, 0, 0), 0);
    EXPECT_EQ(next_token(kLargest, kRandomMask, 0), kLargest);
    EXPECT_EQ(next_token(kMillis, 0, kLargest - 1), kLargest);
    EXPECT_EQ(next_token(kMillis, 5, kLargest - 10), kLargest);
}

TEST(NextToken, AlwaysGrowsUnderAWildClock) {
    std::mt19937 generator(20240229);
    std::uniform_int_distribution<std::int64_t> step(-1000, 1000);
    std::int64_t clock = kMillis;
    std::int64_t previous = 0;
    for (int i = 0; i < 10000; ++i) {
        clock += step(generator);
        const std::int64_t token = next_token(clock, generator(), previous);
        ASSERT_GT(token, previous);
        ASSERT_GE(millis_of(token), clock);
        previous = token;
    }
}

}  // namespace
}  // namespace idem::core
