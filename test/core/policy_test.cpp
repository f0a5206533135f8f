#include "core/policy.hpp"

#include <gtest/gtest.h>

namespace idem::core {
namespace {

TEST(OnLeaseExpiryWord, KnowsItsTwoWords) {
    EXPECT_EQ(on_lease_expiry_from_word("takeover"), OnLeaseExpiry::Takeover);
    EXPECT_EQ(on_lease_expiry_from_word("unknown"), OnLeaseExpiry::Unknown);
    for (const auto word : {"", "Takeover", "takeover ", "omit"}) {
        EXPECT_EQ(on_lease_expiry_from_word(word), std::nullopt) << word;
    }
}

TEST(OnLargeBodyWord, KnowsItsTwoWords) {
    EXPECT_EQ(on_large_body_from_word("error"), OnLargeBody::Error);
    EXPECT_EQ(on_large_body_from_word("omit"), OnLargeBody::Omit);
    for (const auto word : {"", "ERROR", "omitted", "takeover"}) {
        EXPECT_EQ(on_large_body_from_word(word), std::nullopt) << word;
    }
}

}  // namespace
}  // namespace idem::core
