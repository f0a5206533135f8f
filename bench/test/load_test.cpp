#include "harness/load.hpp"

#include <gtest/gtest.h>

#include "test/histograms.hpp"

namespace idem::bench {
namespace {

std::vector<Histogram> seconds_of(std::initializer_list<int> calls) {
    std::vector<Histogram> seconds;
    for (int count : calls) seconds.push_back(calls_of_10_microseconds(count));
    return seconds;
}

TEST(BusiestOverLast, ComparesWindowsOfTheSameLength) {
    EXPECT_DOUBLE_EQ(busiest_over_last(seconds_of({1, 4, 6, 3, 2, 2}), 2), 10.0 / 4);
    EXPECT_DOUBLE_EQ(busiest_over_last(seconds_of({1, 4, 6, 3, 2, 2}), 1), 6.0 / 2);
}

TEST(BusiestOverLast, IsOneWhileTheRateRises) {
    EXPECT_EQ(busiest_over_last(seconds_of({1, 2, 3, 4}), 2), 1);
    EXPECT_EQ(busiest_over_last(seconds_of({3, 1}), 5), 1);
}

TEST(BusiestOverLast, IsOneWithoutCalls) {
    EXPECT_EQ(busiest_over_last({}, 3), 1);
    EXPECT_EQ(busiest_over_last(seconds_of({0, 0}), 1), 1);
}

}  // namespace
}  // namespace idem::bench
