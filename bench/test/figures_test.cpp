#include <gtest/gtest.h>

#include "harness/plots.hpp"
#include "harness/side_by_side.hpp"
#include "test/histograms.hpp"

namespace idem::bench {
namespace {

Sample sample(int calls, double seconds) {
    return {calls_of_10_microseconds(calls), seconds};
}

const Comparison& comparison() {
    static const Comparison two({{"slow", {sample(10, 1), sample(40, 2), sample(30, 1)}},
                                 {"fast", {sample(20, 1), sample(50, 2), sample(120, 1)}}});
    return two;
}

TEST(Figures, MedianIsTheMiddleOrTheMeanOfTheMiddleTwo) {
    EXPECT_EQ(median({}), 0);
    EXPECT_EQ(median({3, 1, 2}), 2);
    EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

TEST(Figures, RatiosAreTakenWithinRounds) {
    EXPECT_EQ(comparison().ratios("slow", "fast"), (std::vector<double>{0.5, 0.8, 0.25}));
    EXPECT_THROW(comparison().of("nobody"), std::logic_error);
}

TEST(Figures, AreReachedAtTheLimit) {
    EXPECT_TRUE(comparison().figure("test", "slow", "fast", 0.5).reached());
    EXPECT_FALSE(comparison().figure("test", "slow", "fast", 0.51).reached());
    EXPECT_TRUE(largest_figure("test", {1, 2}, 2, "").reached());
    EXPECT_FALSE(largest_figure("test", {1, 2}, 1.9, "").reached());
}

TEST(Figures, ShowTheLargestAndTheMedian) {
    EXPECT_EQ(comparison().figure("test", "slow", "fast", 0.5).value, 0.5);
    EXPECT_EQ(largest_figure("test", {1, 3, 2}, 2, "").value, 3);
}

// Whatever the direction: above the line is good.
TEST(Figures, AreDrawnAsTheShareOfWhatIsWanted) {
    Chart chart = chart_of({median_figure("throughput", {0.9}, Bound::AtLeast, 0.6),
                            median_figure("latency", {4}, Bound::AtMost, 5)});
    EXPECT_DOUBLE_EQ(chart.series.at(0).values.at(0), 1.5);
    EXPECT_DOUBLE_EQ(chart.series.at(0).values.at(1), 1.25);
}

TEST(Tables, StandSideBySide) {
    Table left{{"name", "a"}, {"x", "1"}};
    Table right{{"name", "a"}, {"x", "2"}};
    EXPECT_EQ(beside(left, "other", right), (Table{{"name", "a", "other a"}, {"x", "1", "2"}}));
}

}  // namespace
}  // namespace idem::bench
