// Readings of a clock that is right, slow, set ahead, or set back.
#include <gtest/gtest.h>

#include "run/clock_watch.hpp"

namespace idem::chaos {
namespace {

struct Reading {
    Micros wall, steady;
};

StepsBack seen(const std::vector<Reading>& readings) {
    StepsBack steps;
    for (const Reading& reading : readings) steps.see(reading.wall, reading.steady);
    return steps;
}

TEST(Clock, ARightOneNeverGoesBack) {
    EXPECT_EQ(seen({{7'000'000, 0}, {7'002'000, 2'000}, {7'003'950, 4'000}}).times(), 0);
}

TEST(Clock, ASlowedOneNeverGoesBack) {
    EXPECT_EQ(seen({{7'000'000, 0}, {7'900'000, 1'000'000}, {8'800'000, 2'000'000}}).times(), 0);
}

TEST(Clock, OneThatIsSetAheadDoesNotGoBack) {
    EXPECT_EQ(seen({{7'000'000, 0}, {9'000'000, 2'000}, {9'002'000, 4'000}}).times(), 0);
}

TEST(Clock, AStepBackWithinTheTimeThatHasPassedIsFound) {
    const StepsBack steps = seen({{7'000'000, 0}, {7'000'500, 2'000}, {7'002'500, 4'000}});
    EXPECT_EQ(steps.times(), 1);
    EXPECT_EQ(steps.farthest(), 1'500);
}

TEST(Clock, AStepBackIsFoundAfterAStepAhead) {
    const StepsBack steps = seen({{7'000'000, 0}, {9'000'000, 2'000}, {7'004'000, 4'000}});
    EXPECT_EQ(steps.times(), 1);
    EXPECT_EQ(steps.farthest(), 1'998'000);
}

// Both of its clocks are behind.
TEST(Clock, AProcessorThatLagsIsFound) {
    const StepsBack steps = seen({{7'000'000, 1'000}, {6'999'990, 990}});
    EXPECT_EQ(steps.times(), 1);
    EXPECT_EQ(steps.farthest(), 10);
}

TEST(Clock, ThatOfThisMachineIsRead) {
    ClockWatch watch;
    rest(200 * kMillisecond);
    EXPECT_GT(watch.stop().readings(), 1);
}

}  // namespace
}  // namespace idem::chaos
