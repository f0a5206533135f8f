#include "core/policy.hpp"

#include <gtest/gtest.h>

namespace idem::core {
namespace {

// ---- options ----

const PolicyColumn& column(std::string_view name) {
    return kPolicyColumns[policy_column(name)];
}

// A policy with only this option.
Policy with(std::string_view name, std::int64_t value) {
    Policy policy;
    column(name).put(&policy, value);
    return policy;
}

int place_in(std::string_view name, std::string_view word) {
    return place_of_word(word, column(name).words);
}

TEST(OnLeaseExpiryWord, KnowsItsTwoWords) {
    EXPECT_EQ(with("on_lease_expiry", place_in("on_lease_expiry", "takeover")).on_lease_expiry,
              OnLeaseExpiry::Takeover);
    EXPECT_EQ(with("on_lease_expiry", place_in("on_lease_expiry", "unknown")).on_lease_expiry,
              OnLeaseExpiry::Unknown);
    for (const auto word :
         {"", "Takeover", "takeover ", "omit", "takeover,", "takeover, unknown", " unknown", ","}) {
        EXPECT_EQ(place_in("on_lease_expiry", word), -1) << word;
    }
}

TEST(OnLargeBodyWord, KnowsItsTwoWords) {
    EXPECT_EQ(with("on_large_body", place_in("on_large_body", "error")).on_large_body,
              OnLargeBody::Error);
    EXPECT_EQ(with("on_large_body", place_in("on_large_body", "omit")).on_large_body,
              OnLargeBody::Omit);
    for (const auto word : {"", "ERROR", "omitted", "takeover"}) {
        EXPECT_EQ(place_in("on_large_body", word), -1) << word;
    }
}

TEST(OnMissingKeyWord, KnowsItsThreeWords) {
    const auto meant = [](std::string_view word) {
        return with("on_missing_key", place_in("on_missing_key", word)).on_missing_key;
    };
    EXPECT_EQ(meant("generate"), OnMissingKey::Generate);
    EXPECT_EQ(meant("derive"), OnMissingKey::Derive);
    EXPECT_EQ(meant("error"), OnMissingKey::Error);
}

TEST(OnAbandonWord, KnowsItsThreeWords) {
    const auto meant = [](std::string_view word) {
        return with("on_abandon", place_in("on_abandon", word)).on_abandon;
    };
    EXPECT_EQ(meant("fail"), OnAbandon::Fail);
    EXPECT_EQ(meant("release"), OnAbandon::Release);
    EXPECT_EQ(meant("unknown"), OnAbandon::Unknown);
}

TEST(RetryJitterWord, KnowsItsTwoWords) {
    const auto meant = [](std::string_view word) {
        return with("retry_jitter", place_in("retry_jitter", word)).retry_jitter;
    };
    EXPECT_EQ(meant("full"), RetryJitter::Full);
    EXPECT_EQ(meant("none"), RetryJitter::None);
}

TEST(Words, AreFoundAtTheirPlaces) {
    for (const PolicyColumn& column : kPolicyColumns) {
        if (column.words == nullptr) continue;
        EXPECT_EQ(place_of_word(word_at(0, column.words), column.words), 0) << column.name;
        EXPECT_EQ(place_of_word(word_at(1, column.words), column.words), 1) << column.name;
    }
    EXPECT_EQ(word_at(2, "a, bc, def"), "def");
    EXPECT_EQ(word_at(3, "a, bc, def"), "");
}

TEST(PolicyColumns, ReturnTheValuesThatWereSet) {
    for (const PolicyColumn& column : kPolicyColumns) {
        if (column.put == nullptr) continue;
        Policy policy;
        column.put(&policy, 1);
        EXPECT_EQ(column.get(policy), 1) << column.name;
        column.put(&policy, 0);
        EXPECT_EQ(column.get(policy), 0) << column.name;
    }
}

TEST(PolicyColumns, PutValuesWhereTheirNamesSay) {
    EXPECT_EQ(with("ttl", 7).ttl, 7);
    EXPECT_EQ(with("retention", 7).retention, 7);
    EXPECT_EQ(with("lease", 7).lease, 7);
    EXPECT_EQ(with("wait", 7).wait, 7);
    EXPECT_EQ(with("max_attempts", 7).max_attempts, 7);
    EXPECT_EQ(with("retry_base", 7).retry_base, 7);
    EXPECT_EQ(with("retry_cap", 7).retry_cap, 7);
    EXPECT_EQ(with("max_ttl", 7).max_ttl, 7);
    EXPECT_EQ(with("max_lease", 7).max_lease, 7);
    EXPECT_EQ(with("abandon_after", 7).abandon_after, 7);
    EXPECT_EQ(with("derive_window", 7).derive_window, 7);
    EXPECT_TRUE(with("principal_required", 1).principal_required);
    EXPECT_TRUE(with("fingerprint_required", 1).fingerprint_required);
    EXPECT_TRUE(with("store_request", 1).store_request);
    EXPECT_EQ(with("max_body_bytes", 7).max_body_bytes, 7);
}

// ---- memory ----

constexpr std::int64_t kNow = 1'000'000'000;
constexpr std::int64_t kChange = kNow + kTimeToCommit;

void expect(const Memory& memory, std::int64_t span, std::int64_t since, std::int64_t before) {
    EXPECT_EQ(memory.span, span);
    EXPECT_EQ(memory.since, since);
    if (since != kUnchanged) {
        EXPECT_EQ(memory.before, before);
    }
}

const Safeguard& safeguard(std::string_view option) {
    for (const Safeguard& one : kSafeguards)
        if (one.option == option) return one;
    ADD_FAILURE() << option;
    return kSafeguards[0];
}

TEST(Safeguards, AreWeakenedInOneDirection) {
    const Policy weak;
    Policy strong;
    strong.retention = kDay;
    strong.principal_required = strong.encrypt = strong.transactional_only = true;
    strong.reason_required = true;
    strong.on_lease_expiry = OnLeaseExpiry::Unknown;
    for (const Safeguard& one : kSafeguards) {
        EXPECT_EQ(weakens(one, strong, weak), one.strength != nullptr);
        EXPECT_FALSE(weakens(one, weak, strong));
        EXPECT_FALSE(weakens(one, strong, strong));
    }
}

TEST(Safeguards, ALongTtlRemembersAsWell) {
    Policy strong;
    Policy other;
    strong.retention = kDay;
    other.ttl = kDay;
    EXPECT_FALSE(weakens(safeguard("retention"), strong, other));
    other.ttl = kDay - 1;
    EXPECT_TRUE(weakens(safeguard("retention"), strong, other));
}

TEST(Safeguards, OfOthersAreNotTouched) {
    Policy strong;
    Policy other;
    strong.max_attempts = 1;
    strong.fingerprint_required = strong.store_request = true;
    for (const Safeguard& one : kSafeguards) EXPECT_FALSE(weakens(one, strong, other));
}

TEST(MemorySince, IsTheShortestSinceThen) {
    const Memory memory{500, kNow, 20};
    EXPECT_EQ(memory_since(memory, kNow - 1), 20);
    EXPECT_EQ(memory_since(memory, kNow), 500);
    EXPECT_EQ(memory_since(memory, INT64_MIN), 20);
    EXPECT_EQ(memory_since({20, kNow, 500}, kNow - 1), 20);
    EXPECT_EQ(memory_since(unchanged_memory(500), INT64_MIN), 500);
    EXPECT_EQ(memory_since({500, INT64_MAX, 20}, kNow), 20);
}

TEST(ChangedMemory, GrowsFromNowOn) {
    expect(changed_memory(unchanged_memory(20), 500, kNow), 500, kChange, 20);
}

TEST(ChangedMemory, ShrinksAtOnce) {
    expect(changed_memory(unchanged_memory(500), 20, kNow), 20, kUnchanged, 0);
    expect(changed_memory(unchanged_memory(500), 500, kNow), 500, kUnchanged, 0);
}

TEST(ChangedMemory, KeepsThePastThatMatters) {
    const Memory grown{500, kNow - 400, 20};
    expect(changed_memory(grown, 500, kNow), 500, kNow - 400, 20);
    expect(changed_memory(grown, 100, kNow), 100, kNow - 400, 20);
    expect(changed_memory(grown, 900, kNow), 900, kChange, 20);
}

TEST(ChangedMemory, ForgetsThePastThatIsOver) {
    const Memory grown{500, kNow - 500, 20};
    EXPECT_FALSE(past_matters(grown, kNow));
    expect(changed_memory(grown, 500, kNow), 500, kUnchanged, 0);
    expect(changed_memory(grown, 900, kNow), 900, kChange, 500);
}

TEST(ChangedMemory, APastWithoutEndMattersForEver) {
    EXPECT_TRUE(past_matters({500, INT64_MAX, 20}, INT64_MAX - 1));
}

TEST(WithPast, TakesTheShorterAndTheLater) {
    expect(with_past({500, 7, 20}, {1, 9, 30}), 500, 9, 20);
    expect(with_past({500, 9, 30}, {1, 7, 20}), 500, 9, 20);
    expect(with_past(unchanged_memory(500), {1, 7, 20}), 500, 7, 20);
    expect(with_past({500, 7, 20}, unchanged_memory(1)), 500, 7, 20);
    expect(with_past(unchanged_memory(500), unchanged_memory(1)), 500, kUnchanged, 0);
}

// All combinations of three changes and a request: a request that is not refused can't have been
// forgotten. A key claimed at any moment since the request was first sent is remembered for as long
// as the policy said then.
TEST(ChangedMemory, NeverForgetsAnAdmittedRequest) {
    const std::int64_t minute = 60'000'000;
    const std::int64_t spans[] = {minute, 3 * minute, 7 * minute, 20 * minute};
    const std::int64_t last = 40 * minute;
    std::size_t refused = 0;
    std::size_t passed = 0;
    for (const std::int64_t first : spans)
        for (const std::int64_t second : spans)
            for (const std::int64_t third : spans)
                for (const std::int64_t fourth : spans)
                    for (std::int64_t gap = minute; gap <= 9 * minute; gap += 2 * minute) {
                        const std::int64_t said[] = {first, second, third, fourth};
                        // A policy applies from its commit on, less than a minute after the call.
                        const auto said_at = [&](std::int64_t moment) {
                            std::int64_t span = said[0];
                            for (int i = 1; i < 4; i++)
                                if (moment >= i * gap + minute - 1) span = said[i];
                            return span;
                        };
                        Memory memory = unchanged_memory(said[0]);
                        for (int i = 1; i < 4; i++)
                            memory = changed_memory(memory, said[i], i * gap);
                        for (std::int64_t now = 3 * gap + minute; now <= last; now += minute)
                            for (std::int64_t sent = -10 * minute; sent <= now; sent += minute) {
                                if (sent < now - memory_since(memory, sent)) {
                                    refused++;
                                    continue;
                                }
                                passed++;
                                for (std::int64_t claimed = sent; claimed <= now;
                                     claimed += minute / 2)
                                    ASSERT_GE(claimed + said_at(claimed), now)
                                        << "claimed " << claimed << " sent " << sent;
                            }
                    }
    EXPECT_GT(refused, 0u);
    EXPECT_GT(passed, 0u);
}

}  // namespace
}  // namespace idem::core
