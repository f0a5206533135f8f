#include "core/pace.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "core/duration.hpp"

namespace idem::core {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();

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
