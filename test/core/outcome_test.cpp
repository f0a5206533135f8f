#include "core/outcome.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

namespace idem::core {
namespace {

constexpr std::pair<Outcome, std::string_view> kWords[] = {
    {Outcome::Execute, "execute"},        {Outcome::InProgress, "in_progress"},
    {Outcome::Mismatch, "mismatch"},      {Outcome::Replay, "replay"},
    {Outcome::RetryLater, "retry_later"}, {Outcome::Exhausted, "exhausted"},
    {Outcome::Expired, "expired"},        {Outcome::Unknown, "unknown"},
};

TEST(OutcomeWord, IsTheWordOfTheContract) {
    for (const auto& [outcome, word] : kWords) EXPECT_EQ(entry_of(outcome).word, word);
}

TEST(StatusWord, IsTheWordOfTheContract) {
    EXPECT_EQ(entry_of(Status::InProgress).word, "in_progress");
    EXPECT_EQ(entry_of(Status::Completed).word, "completed");
    EXPECT_EQ(entry_of(Status::Failed).word, "failed");
    EXPECT_EQ(entry_of(Status::Retryable).word, "retryable");
    EXPECT_EQ(entry_of(Status::Exhausted).word, "exhausted");
    EXPECT_EQ(entry_of(Status::Unknown).word, "unknown");
}

TEST(Status, OfAForeignByteIsUnknown) {
    EXPECT_EQ(entry_of(static_cast<Status>('?')).status, Status::Unknown);
}

TEST(Resolution, IsTheWordOfTheContract) {
    EXPECT_EQ(entry_of(Resolution::Release).word, "release");
    EXPECT_EQ(entry_of(Resolution::Complete).word, "complete");
    EXPECT_EQ(entry_of(Resolution::Fail).word, "fail");
    EXPECT_EQ(entry_of(Resolution::Reopen).word, "reopen");
}

constexpr std::string_view kRefusals[] = {
    "missing_key", "bad_key",   "in_progress", "mismatch", "expired",
    "retry_later", "exhausted", "unknown",     "failed",
};

const Problem* known_problem(std::string_view word) {
    bool known = false;
    const Problem* problem = problem_of(word, &known);
    EXPECT_TRUE(known) << word;
    return problem;
}

TEST(ProblemOf, HasTheHttpStatusOfTheDraft) {
    const std::pair<std::string_view, int> statuses[] = {
        {"missing_key", 400}, {"bad_key", 400}, {"in_progress", 409},
        {"mismatch", 422},    {"expired", 412}, {"retry_later", 503},
        {"exhausted", 500},   {"unknown", 409}, {"failed", 500},
    };
    for (const auto& [word, status] : statuses) {
        const Problem* problem = known_problem(word);
        ASSERT_NE(problem, nullptr) << word;
        EXPECT_EQ(problem->http_status, status) << word;
    }
}

TEST(ProblemOf, HasTheTitleOfTheDraft) {
    EXPECT_EQ(known_problem("missing_key")->title, "Idempotency-Key is missing");
    EXPECT_EQ(known_problem("mismatch")->title, "Idempotency-Key is already used");
    EXPECT_EQ(known_problem("in_progress")->title,
              "A request is outstanding for this Idempotency-Key");
}

TEST(ProblemOf, TypeNamesTheWord) {
    for (const auto word : kRefusals) {
        std::string slug(word);
        for (char& c : slug) {
            if (c == '_') c = '-';
        }
        EXPECT_EQ(known_problem(word)->type, "/problems/idempotency/" + slug);
    }
}

TEST(ProblemOf, TitlesAndDetailsAreDistinctTexts) {
    std::set<std::string_view> texts;
    for (const auto word : kRefusals) {
        const Problem* problem = known_problem(word);
        EXPECT_TRUE(texts.insert(problem->title).second) << word;
        EXPECT_TRUE(texts.insert(problem->detail).second) << word;
        EXPECT_EQ(problem->detail.back(), '.') << word;
    }
}

TEST(ProblemOf, ExecuteAndReplayAreNoProblem) {
    EXPECT_EQ(known_problem("execute"), nullptr);
    EXPECT_EQ(known_problem("replay"), nullptr);
}

TEST(ProblemWord, IsTheOutcome) {
    for (const auto& [outcome, word] : kWords) {
        EXPECT_EQ(problem_word({word, "in_progress", false}), word);
        EXPECT_EQ(problem_word({word, "failed", true}), word);
    }
    EXPECT_EQ(problem_word({"missing_key", "", false}), "missing_key");
    EXPECT_EQ(problem_word({"replay", "completed", false}), "replay");
    EXPECT_EQ(problem_word({"mismatch", "failed", false}), "mismatch");
    EXPECT_EQ(problem_word({"expired", "failed", false}), "expired");
}

TEST(ProblemWord, IsFailedForAFailureWithoutAStatus) {
    EXPECT_EQ(problem_word({"replay", "failed", false}), "failed");
    EXPECT_EQ(problem_word({"execute", "failed", false}), "failed");
    EXPECT_EQ(problem_word({"", "failed", false}), "failed");
}

TEST(ProblemWord, FollowsTheStatusOfALook) {
    EXPECT_EQ(problem_word({"", "completed", false}), "replay");
    EXPECT_EQ(problem_word({"", "failed", true}), "replay");
    EXPECT_EQ(problem_word({"", "in_progress", false}), "in_progress");
    EXPECT_EQ(problem_word({"", "retryable", false}), "retry_later");
    EXPECT_EQ(problem_word({"", "unknown", false}), "unknown");
    EXPECT_EQ(problem_word({"", "", false}), "");
}

TEST(ProblemOf, TellsForeignWordsApart) {
    for (const auto word : {"", "completed", "MISMATCH", "missing-key"}) {
        bool known = true;
        EXPECT_EQ(problem_of(word, &known), nullptr) << word;
        EXPECT_FALSE(known) << word;
    }
}

}  // namespace
}  // namespace idem::core
