#include "harness/histogram.hpp"

#include <gtest/gtest.h>

#include "test/histograms.hpp"

namespace idem::bench {
namespace {

using std::chrono::microseconds;

TEST(Histogram, HasNoQuantileWithoutCalls) {
    EXPECT_EQ(Histogram{}.quantile(0.5), 0);
}

TEST(Histogram, IsExactBelow64Microseconds) {
    Histogram histogram;
    for (int micros = 1; micros <= 60; micros++) histogram.record(microseconds(micros));
    EXPECT_EQ(histogram.count(), 60u);
    EXPECT_DOUBLE_EQ(histogram.quantile(0.5), 0.030);
    EXPECT_DOUBLE_EQ(histogram.quantile(1.0), 0.060);
}

// From a microsecond to several hours: the bucket's upper edge, at most 1/32 above.
TEST(Histogram, RoundsUpByAtMostABucket) {
    for (std::int64_t micros = 1; micros < 20'000'000'000; micros = micros * 5 / 4 + 1) {
        Histogram histogram;
        histogram.record(microseconds(micros));
        double exact = static_cast<double>(micros) / 1000;
        EXPECT_GE(histogram.quantile(0.5), exact * (1 - 1e-12)) << micros;
        EXPECT_LE(histogram.quantile(0.5), exact * (1 + 1.0 / 32)) << micros;
    }
}

TEST(Histogram, FindsTheSlowOnes) {
    Histogram histogram = calls_of_10_microseconds(990);
    for (int i = 0; i < 10; i++) histogram.record(microseconds(50));
    EXPECT_DOUBLE_EQ(histogram.quantile(0.99), 0.010);
    EXPECT_DOUBLE_EQ(histogram.quantile(0.991), 0.050);
}

TEST(Histogram, AddsUp) {
    Histogram one;
    Histogram other;
    one.record(microseconds(10));
    other.record(microseconds(20));
    other.record(microseconds(30));
    one.add(other);
    EXPECT_EQ(one.count(), 3u);
    EXPECT_DOUBLE_EQ(one.quantile(0.5), 0.020);
}

}  // namespace
}  // namespace idem::bench
