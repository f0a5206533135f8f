#include "core/time.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace idem::core {
namespace {

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

TEST(CheckSpan, AcceptsTheRangeWithItsEnds) {
    EXPECT_EQ(check_span(1, kTtlRange), SpanFault::None);
    EXPECT_EQ(check_span(kLongest, kTtlRange), SpanFault::None);
    EXPECT_EQ(check_span(0, kWaitRange), SpanFault::None);
    EXPECT_EQ(check_span(kDay, kWaitRange), SpanFault::None);
}

TEST(CheckSpan, RefusesSpansOutsideTheRange) {
    EXPECT_EQ(check_span(-1, kTtlRange), SpanFault::Negative);
    EXPECT_EQ(check_span(-1, kWaitRange), SpanFault::Negative);
    EXPECT_EQ(check_span(Int64::min(), kWaitRange), SpanFault::Negative);
    EXPECT_EQ(check_span(0, kTtlRange), SpanFault::Zero);
    EXPECT_EQ(check_span(kLongest + 1, kLeaseRange), SpanFault::TooLong);
    EXPECT_EQ(check_span(kDay + 1, kWaitRange), SpanFault::TooLong);
    EXPECT_EQ(check_span(Int64::max(), kRetryRange), SpanFault::TooLong);
}

}  // namespace
}  // namespace idem::core
