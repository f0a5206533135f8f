#include "core/pattern.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace idem::core {
namespace {

// ---- one pattern ----

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

TEST(PatternRank, PrefixFitsScopesThatBeginWithIt) {
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

TEST(PatternReach, ValidPatternsAreUnchanged) {
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

// ---- many patterns ----

std::vector<Reach> ordered(const std::vector<std::string>& patterns) {
    std::vector<Reach> reaches;
    for (const std::string& pattern : patterns)
        reaches.push_back({pattern_reach(pattern), reaches.size(), false, 0});
    order_reaches(reaches.data(), reaches.size());
    return reaches;
}

// The index of the pattern that applies; -1: none, -2: it is there twice.
int best(const std::vector<std::string>& patterns, std::string_view scope) {
    const std::vector<Reach> reaches = ordered(patterns);
    const std::size_t found = best_reach(reaches.data(), reaches.size(), scope);
    if (found == kNoReach) return -1;
    return reaches[found].twice ? -2 : static_cast<int>(reaches[found].owner);
}

// The same, by asking each pattern in turn.
int best_in_turn(const std::vector<std::string>& patterns, std::string_view scope) {
    int best = -1;
    std::size_t best_rank = 0;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
        const std::size_t rank = pattern_rank(pattern_reach(patterns[i]), scope);
        if (rank == 0 || rank < best_rank) continue;
        best = rank == best_rank ? -2 : static_cast<int>(i);
        best_rank = rank;
    }
    return best;
}

TEST(BestReach, OfNoneIsNone) {
    EXPECT_EQ(best({}, ""), -1);
    EXPECT_EQ(best({}, "a"), -1);
}

TEST(BestReach, TheExactScopeThenTheLongestPrefix) {
    const std::vector<std::string> patterns = {"*", "a*", "a/b*", "a/b", "a/c*", "b"};
    EXPECT_EQ(best(patterns, "a/b"), 3);
    EXPECT_EQ(best(patterns, "a/bc"), 2);
    EXPECT_EQ(best(patterns, "a/d"), 1);
    EXPECT_EQ(best(patterns, "a"), 1);
    EXPECT_EQ(best(patterns, "c"), 0);
    EXPECT_EQ(best(patterns, ""), 0);
    EXPECT_EQ(best(patterns, "b"), 5);
    EXPECT_EQ(best(patterns, "bb"), 0);
}

TEST(BestReach, DuplicatesAreReported) {
    EXPECT_EQ(best({"a*", "a*b", "a"}, "ax"), -2);
    EXPECT_EQ(best({"a*", "a*b", "a"}, "a"), 2);
    EXPECT_EQ(best({"a", "a"}, "a"), -2);
}

TEST(BestReach, IsTheOneWithTheHighestRank) {
    std::mt19937 random(1);
    const auto draw = [&](std::string_view letters, std::size_t longest) {
        std::string text;
        for (std::size_t left = random() % (longest + 1); left > 0; --left)
            text += letters[random() % letters.size()];
        return text;
    };
    for (int round = 0; round < 3000; ++round) {
        std::vector<std::string> patterns(random() % 20);
        for (std::string& pattern : patterns) pattern = draw("ab\xff*", 5);
        for (int i = 0; i < 20; ++i) {
            const std::string scope = draw("ab\xff", 6);
            ASSERT_EQ(best(patterns, scope), best_in_turn(patterns, scope)) << round << scope;
        }
    }
}

}  // namespace
}  // namespace idem::core
