#include "core/pattern.hpp"

#include <gtest/gtest.h>

#include <string>

namespace idem::core {
namespace {

PatternFault check(std::string_view pattern) {
    return check_pattern(pattern, pattern.size(), true);
}

TEST(CheckPattern, AcceptsScopesAndPrefixes) {
    for (const auto pattern : {"", "*", "POST /payments", "POST /*", "a*"}) {
        EXPECT_EQ(check(pattern), PatternFault::None) << pattern;
    }
}

TEST(CheckPattern, StarStandsOnlyAtTheEnd) {
    for (const auto pattern : {"*a", "a*b", "**", "a**", "*a*"}) {
        EXPECT_EQ(check(pattern), PatternFault::InnerStar) << pattern;
    }
}

TEST(CheckPattern, LimitsAreThoseOfAScope) {
    EXPECT_EQ(check(std::string(255, 'x')), PatternFault::None);
    EXPECT_EQ(check(std::string(256, 'x')), PatternFault::TooLong);
    EXPECT_EQ(check("a\nb"), PatternFault::ControlCharacter);
    EXPECT_EQ(check_pattern("\xc2\x85", 1, true), PatternFault::ControlCharacter);
    EXPECT_EQ(check_pattern("\xc2\x85", 2, false), PatternFault::None);
}

TEST(PatternRank, ExactScopeOnly) {
    EXPECT_GT(pattern_rank("POST /a", "POST /a"), 0u);
    EXPECT_GT(pattern_rank("", ""), 0u);
    EXPECT_EQ(pattern_rank("POST /a", "POST /ab"), 0u);
    EXPECT_EQ(pattern_rank("POST /ab", "POST /a"), 0u);
    EXPECT_EQ(pattern_rank("", "a"), 0u);
    EXPECT_EQ(pattern_rank("post /a", "POST /a"), 0u);
}

TEST(PatternRank, PrefixFitsWhatBeginsWithIt) {
    EXPECT_GT(pattern_rank("POST /*", "POST /payments"), 0u);
    EXPECT_GT(pattern_rank("POST /*", "POST /"), 0u);
    EXPECT_EQ(pattern_rank("POST /*", "POST "), 0u);
    EXPECT_EQ(pattern_rank("POST /*", "GET /"), 0u);
    EXPECT_EQ(pattern_rank("POST /*", ""), 0u);
}

TEST(PatternRank, StarFitsEverything) {
    EXPECT_GT(pattern_rank("*", ""), 0u);
    EXPECT_GT(pattern_rank("*", "anything"), 0u);
}

TEST(PatternRank, LongerPrefixesWinAndTheExactScopeWinsOverAll) {
    const std::string scope = "POST /payments";
    std::size_t last = 0;
    for (std::size_t length = 0; length <= scope.size(); ++length) {
        const std::size_t rank = pattern_rank(scope.substr(0, length) + "*", scope);
        EXPECT_GT(rank, last) << "prefix of " << length;
        last = rank;
    }
    EXPECT_GT(pattern_rank(scope, scope), last);
    EXPECT_GT(pattern_rank("", ""), pattern_rank("*", ""));
}

TEST(PatternReach, GoodPatternsAreWhatTheyAre) {
    for (std::string_view pattern : {"", "a", "a/b", "*", "a*"}) {
        EXPECT_EQ(pattern_reach(pattern), pattern);
    }
}

TEST(PatternReach, OthersReachAsFarAsTheirFirstStar) {
    EXPECT_EQ(pattern_reach("a*b"), "a*");
    EXPECT_EQ(pattern_reach("a**"), "a*");
    EXPECT_EQ(pattern_reach("*b*"), "*");
}

TEST(CoverRank, OfAScopeIsThatOfThePattern) {
    EXPECT_EQ(cover_rank("a/b", "a/b"), pattern_rank("a/b", "a/b"));
    EXPECT_EQ(cover_rank("a*", "a/b"), 2u);
    EXPECT_EQ(cover_rank("a/b*", "a/b"), 4u);
    EXPECT_EQ(cover_rank("a/c", "a/b"), 0u);
}

TEST(CoverRank, APrefixIsCoveredByItselfAndShorterOnes) {
    EXPECT_EQ(cover_rank("*", "a/b*"), 1u);
    EXPECT_EQ(cover_rank("a*", "a/b*"), 2u);
    EXPECT_EQ(cover_rank("a/b*", "a/b*"), 4u);
    EXPECT_EQ(cover_rank("a/bc*", "a/b*"), 0u);
    EXPECT_EQ(cover_rank("a/c*", "a/b*"), 0u);
    EXPECT_EQ(cover_rank("a/b", "a/b*"), 0u);
}

}  // namespace
}  // namespace idem::core
