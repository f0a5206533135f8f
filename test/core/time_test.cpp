#include "core/time.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace idem::core {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();

// ---- spans ----

using Int32 = std::numeric_limits<std::int32_t>;
using Int64 = std::numeric_limits<std::int64_t>;

TEST(IntervalMicros, AddsTheFields) {
    EXPECT_EQ(interval_micros(0, 0, 0), 0);
    EXPECT_EQ(interval_micros(0, 0, 1), 1);
    EXPECT_EQ(interval_micros(0, 1, 0), kDay);
    EXPECT_EQ(interval_micros(1, 0, 0), 30 * kDay);
    EXPECT_EQ(interval_micros(2, 3, 4), 63 * kDay + 4);
    EXPECT_EQ(interval_micros(0, 0, 25 * 3600 * kSecond), kDay + 3600 * kSecond);
}

TEST(IntervalMicros, FieldsMayDifferInSign) {
    EXPECT_EQ(interval_micros(1, -30, 5), 5);
    EXPECT_EQ(interval_micros(0, 1, -1), kDay - 1);
    EXPECT_EQ(interval_micros(0, -1, 1), 1 - kDay);
    EXPECT_EQ(interval_micros(-1, 0, 0), -30 * kDay);
}

TEST(IntervalMicros, KeepsTheEndsOfInt64) {
    EXPECT_EQ(interval_micros(0, 0, Int64::max()), Int64::max());
    EXPECT_EQ(interval_micros(0, 0, Int64::min()), Int64::min());
}

TEST(IntervalMicros, Saturates) {
    EXPECT_EQ(interval_micros(0, 1, Int64::max()), Int64::max());
    EXPECT_EQ(interval_micros(0, -1, Int64::min()), Int64::min());
    EXPECT_EQ(interval_micros(Int32::max(), 0, 0), Int64::max());
    EXPECT_EQ(interval_micros(Int32::min(), 0, 0), Int64::min());
    EXPECT_EQ(interval_micros(0, Int32::max(), 0), Int64::max());
    EXPECT_EQ(interval_micros(0, Int32::min(), 0), Int64::min());
}

TEST(IntervalMicros, InfiniteIntervalsSaturate) {
    EXPECT_EQ(interval_micros(Int32::max(), Int32::max(), Int64::max()), Int64::max());
    EXPECT_EQ(interval_micros(Int32::min(), Int32::min(), Int64::min()), Int64::min());
}

TEST(IntervalMicros, LargeFieldsOfOppositeSignCancelOut) {
    // 200 million days alone are past int64; together with the hours they are not.
    const std::int32_t days = 200'000'000;
    const std::int64_t hours = Int64::min() / kDay * kDay;
    EXPECT_EQ(interval_micros(0, days, hours), (days + Int64::min() / kDay) * kDay);
    EXPECT_EQ(interval_micros(Int32::max() / 30, Int32::min() + 2, 0),
              (Int32::max() / 30 * std::int64_t{30} + Int32::min() + 2) * kDay);
}

TEST(Later, StaysWithinTheClock) {
    const Clock clock{-1000, 5000};
    EXPECT_EQ(later(100, 50, clock), 150);
    EXPECT_EQ(later(100, -50, clock), 50);
    EXPECT_EQ(later(100, 4900, clock), 5000);
    EXPECT_EQ(later(100, 4901, clock), 5000);
    EXPECT_EQ(later(100, -1101, clock), -1000);
}

TEST(Later, NeverWrapsAround) {
    const Clock clock{-1000, 5000};
    EXPECT_EQ(later(100, Int64::max(), clock), 5000);
    EXPECT_EQ(later(Int64::max(), 1, clock), 5000);
    EXPECT_EQ(later(-100, Int64::min(), clock), -1000);
    EXPECT_EQ(later(Int64::min(), -1, clock), -1000);
}

TEST(CheckDuration, AcceptsTheRangeWithItsEnds) {
    EXPECT_EQ(check_duration(1, kTtlRange), DurationFault::None);
    EXPECT_EQ(check_duration(kLongest, kTtlRange), DurationFault::None);
    EXPECT_EQ(check_duration(0, kWaitRange), DurationFault::None);
    EXPECT_EQ(check_duration(kDay, kWaitRange), DurationFault::None);
}

TEST(CheckDuration, RefusesWhatIsOutside) {
    EXPECT_EQ(check_duration(-1, kTtlRange), DurationFault::Negative);
    EXPECT_EQ(check_duration(-1, kWaitRange), DurationFault::Negative);
    EXPECT_EQ(check_duration(Int64::min(), kWaitRange), DurationFault::Negative);
    EXPECT_EQ(check_duration(0, kTtlRange), DurationFault::Zero);
    EXPECT_EQ(check_duration(kLongest + 1, kLeaseRange), DurationFault::TooLong);
    EXPECT_EQ(check_duration(kDay + 1, kWaitRange), DurationFault::TooLong);
    EXPECT_EQ(check_duration(Int64::max(), kRetryRange), DurationFault::TooLong);
}

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

// ---- tokens ----

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
