#include "core/time.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace idem::core {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();

// ---- pauses between attempts ----

constexpr int kMaxAttempt = std::numeric_limits<int>::max();

TEST(BackoffCeiling, DoublesFromTheBase) {
    EXPECT_EQ(backoff_ceiling(100, 1'000'000, 1), 100);
    EXPECT_EQ(backoff_ceiling(100, 1'000'000, 2), 200);
    EXPECT_EQ(backoff_ceiling(100, 1'000'000, 3), 400);
    EXPECT_EQ(backoff_ceiling(100, 1'000'000, 11), 102'400);
}

TEST(BackoffCeiling, StopsAtTheCap) {
    EXPECT_EQ(backoff_ceiling(100, 400, 3), 400);
    EXPECT_EQ(backoff_ceiling(100, 399, 3), 399);
    EXPECT_EQ(backoff_ceiling(100, 400, 4), 400);
    EXPECT_EQ(backoff_ceiling(100, 50, 1), 50);
}

TEST(BackoffCeiling, NeverOverflows) {
    EXPECT_EQ(backoff_ceiling(1, kLargest, 63), std::int64_t{1} << 62);
    EXPECT_EQ(backoff_ceiling(1, kLargest, 64), kLargest);
    EXPECT_EQ(backoff_ceiling(1, kLargest, 65), kLargest);
    EXPECT_EQ(backoff_ceiling(kLargest, kLargest, 2), kLargest);
    EXPECT_EQ(backoff_ceiling(3, 1000, kMaxAttempt), 1000);
}

TEST(BackoffCeiling, NeverShrinksAndNeverExceedsTheCap) {
    for (const std::int64_t base : {std::int64_t{1}, std::int64_t{1'000'000}, kLargest / 3}) {
        std::int64_t last = 0;
        for (int attempt = 1; attempt < 200; ++attempt) {
            const std::int64_t ceiling = backoff_ceiling(base, kLargest - 1, attempt);
            ASSERT_GE(ceiling, last);
            ASSERT_LT(ceiling, kLargest);
            last = ceiling;
        }
        EXPECT_EQ(last, kLargest - 1);
    }
}

TEST(BackoffCeiling, CountsNegativeInputAsZero) {
    EXPECT_EQ(backoff_ceiling(-1, 100, 5), 0);
    EXPECT_EQ(backoff_ceiling(100, -1, 5), 0);
    EXPECT_EQ(backoff_ceiling(0, 100, kMaxAttempt), 0);
    EXPECT_EQ(backoff_ceiling(100, 0, 1), 0);
    EXPECT_EQ(backoff_ceiling(100, 1000, 0), 100);
    EXPECT_EQ(backoff_ceiling(100, 1000, std::numeric_limits<int>::min()), 100);
}

TEST(Jittered, SpreadsOverTheWholeRange) {
    EXPECT_EQ(jittered(1000, 0.0), 0);
    EXPECT_EQ(jittered(1000, 0.25), 250);
    EXPECT_EQ(jittered(1000, 0.5), 500);
    EXPECT_EQ(jittered(1000, 0.9999), 999);
}

TEST(Jittered, StaysBetweenZeroAndTheCeiling) {
    const double nearly_one = 1.0 - std::numeric_limits<double>::epsilon() / 2;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const std::int64_t ceiling : {std::int64_t{1}, std::int64_t{1000}, kLargest}) {
        for (const double fraction : {-1.0, 0.0, 0.5, nearly_one, 1.0, 2.0, nan}) {
            EXPECT_GE(jittered(ceiling, fraction), 0);
            EXPECT_LE(jittered(ceiling, fraction), ceiling);
        }
    }
    EXPECT_EQ(jittered(1000, nan), 0);
    EXPECT_EQ(jittered(1000, 2.0), 1000);
}

TEST(Jittered, CountsANegativeCeilingAsZero) {
    EXPECT_EQ(jittered(-1000, 0.5), 0);
    EXPECT_EQ(jittered(0, 0.5), 0);
}

// ---- a sweeper's rest ----

TEST(RestAfter, NineTimesTheWork) {
    EXPECT_EQ(rest_after(0, 0), 0);
    EXPECT_EQ(rest_after(700, 0), 6300);
    EXPECT_EQ(rest_after(4 * kSecond, 0), 36 * kSecond);
}

TEST(RestAfter, StaysForFiveMinutesOfABacklog) {
    EXPECT_EQ(rest_after(1000, 110 * kSecond), 9000);
    EXPECT_EQ(rest_after(1000, 300 * kSecond), 9000);
}

TEST(RestAfter, ShrinksAsTheBacklogGrowsOlder) {
    EXPECT_EQ(rest_after(1000, 600 * kSecond), 4500);
    EXPECT_EQ(rest_after(1000, 2700 * kSecond), 1000);
    EXPECT_EQ(rest_after(1000, kDay), 31);
}

TEST(RestAfter, IsNeverNegativeNorOverflows) {
    EXPECT_EQ(rest_after(-1, 0), 0);
    EXPECT_EQ(rest_after(kSmallest, kSmallest), 0);
    EXPECT_EQ(rest_after(1000, kSmallest), 9000);
    EXPECT_EQ(rest_after(kLargest, kSmallest), 9 * 3600 * kSecond);
    EXPECT_EQ(rest_after(1000, kLargest), 0);
}

}  // namespace
}  // namespace idem::core
