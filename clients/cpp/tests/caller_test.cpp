// The calling side, with faults between.
#include <gtest/gtest.h>

#include <idempotency/caller.hpp>
#include <regex>
#include <set>

namespace idempotency {
namespace {

Answer problem_answer(int status, const std::string& word, const Fields& more = {}) {
    Answer answer{status,
                  {{"Content-Type", "application/problem+json"}},
                  R"({"type":"https://x/problems/idempotency/)" + word + "\"}"};
    answer.headers.insert(answer.headers.end(), more.begin(), more.end());
    return answer;
}

class Caller : public testing::Test {
  protected:
    Answer send(const std::string& key) {
        return send_until_final(
            key,
            [this](const Fields& fields) {
                keys.push_back(value_of(fields, "Idempotency-Key"));
                const auto answer = replies.at(keys.size() - 1);
                if (!answer) throw std::runtime_error("the connection was cut");
                return *answer;
            },
            options);
    }

    CallerOptions options{"Idempotency-Key", 4, std::chrono::milliseconds(1),
                          std::chrono::milliseconds(5), std::chrono::seconds(30)};
    std::vector<std::optional<Answer>> replies;
    std::vector<std::string> keys;
};

TEST_F(Caller, has_one_key_for_all_sendings) {
    replies = {std::nullopt, problem_answer(409, "in-progress"), problem_answer(503, "unavailable"),
               Answer{201, {}, "paid"}};
    EXPECT_EQ(send("k").body, "paid");
    EXPECT_EQ(keys, std::vector<std::string>(4, "\"k\""));
}

TEST_F(Caller, repeats_no_final_answer) {
    for (const auto& answer : {problem_answer(422, "mismatch"), problem_answer(500, "failed"),
                               problem_answer(500, "exhausted"), Answer{402, {}, ""},
                               Answer{503, {{"Idempotent-Replayed", "true"}}, ""}}) {
        keys.clear();
        replies = {answer};
        EXPECT_EQ(send("k").status, answer.status);
    }
}

TEST_F(Caller, obeys_retry_after) {
    replies = {problem_answer(409, "in-progress", {{"Retry-After", "1"}}), Answer{200, {}, ""}};
    const auto begun = std::chrono::steady_clock::now();
    send("k");
    EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::seconds(1));
}

TEST_F(Caller, tells_the_key_if_there_is_no_final_answer) {
    replies = {std::nullopt, Answer{429, {}, ""}, problem_answer(409, "unknown"),
               problem_answer(503, "retry-later")};
    try {
        send("k");
        FAIL() << "it is final";
    } catch (const NotFinal& none) {
        EXPECT_EQ(none.key(), "k");
        EXPECT_EQ(none.answer()->status, 503);
    }
}

TEST_F(Caller, does_not_wait_longer_than_it_may) {
    replies = {problem_answer(503, "unavailable", {{"Retry-After", "3600"}})};
    EXPECT_THROW(send("k"), NotFinal);
    EXPECT_EQ(keys.size(), 1U);
}

TEST_F(Caller, refuses_senseless_options) {
    options.attempts = 0;
    EXPECT_THROW(send("k"), std::invalid_argument);
}

TEST(NewKey, is_a_uuid_of_version_7) {
    std::set<std::string> made;
    for (int i = 0; i < 1000; ++i) {
        made.insert(new_key());
        EXPECT_TRUE(std::regex_match(
            *made.rbegin(),
            std::regex("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")));
    }
    EXPECT_EQ(made.size(), 1000U);
}

}  // namespace
}  // namespace idempotency
