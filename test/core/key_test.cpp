#include "core/key.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace idem::core {
namespace {

// ---- keys, scopes and principals ----

using namespace std::string_view_literals;

Name ascii(std::string_view bytes) {
    return {bytes, bytes.size(), true};
}

TEST(CheckKey, AcceptsOrdinaryKeys) {
    for (const auto key : {"k"sv, "8e03978e-40d5-43e8-bc93-6894a57f9324"sv, "a b"sv, " a"sv, "a "sv,
                           "~!@#$%^&*(){}|:\"<>?[]\\;',./"sv}) {
        EXPECT_EQ(check_key(ascii(key)), NameFault::None) << key;
    }
}

TEST(CheckKey, RefusesEmptyAndBlank) {
    EXPECT_EQ(check_key(ascii("")), NameFault::Empty);
    EXPECT_EQ(check_key(ascii(" ")), NameFault::Blank);
    EXPECT_EQ(check_key(ascii("   ")), NameFault::Blank);
}

TEST(CheckKey, LimitIsInCharactersNotBytes) {
    const std::string longest(255, 'x');
    EXPECT_EQ(check_key(ascii(longest)), NameFault::None);
    EXPECT_EQ(check_key(ascii(longest + "x")), NameFault::TooLong);
    std::string umlauts;
    for (int i = 0; i < 255; ++i) umlauts += "\xc3\xa4";
    EXPECT_EQ(check_key({umlauts, 255, true}), NameFault::None);
    EXPECT_EQ(check_key({umlauts, 256, true}), NameFault::TooLong);
}

TEST(CheckKey, RefusesEveryAsciiControlCharacterWhereverItStands) {
    for (int byte = 0; byte < 0x80; ++byte) {
        const std::string c(1, static_cast<char>(byte));
        const bool control = byte < 0x20 || byte == 0x7f;
        const NameFault expected = control ? NameFault::ControlCharacter : NameFault::None;
        for (const std::string& key : {c + "ab", "a" + c + "b", "ab" + c}) {
            EXPECT_EQ(check_key(ascii(key)), expected) << "byte " << byte;
            EXPECT_EQ(check_key({key, key.size(), false}), expected) << "byte " << byte;
        }
    }
}

TEST(CheckKey, RefusesC1ControlCharactersInUtf8Only) {
    for (int byte = 0x80; byte <= 0xbf; ++byte) {
        const std::string key = std::string("a\xc2") + static_cast<char>(byte);
        const NameFault expected = byte <= 0x9f ? NameFault::ControlCharacter : NameFault::None;
        EXPECT_EQ(check_key({key, 2, true}), expected) << "byte " << byte;
        EXPECT_EQ(check_key({key, 3, false}), NameFault::None) << "byte " << byte;
    }
}

TEST(CheckKey, AcceptsLettersWhoseLastByteLooksLikeAControlCharacter) {
    // U+00C0 is C3 80, U+0400 is D0 80: only a leading C2 makes a C1 character.
    EXPECT_EQ(check_key({"\xc3\x80", 1, true}), NameFault::None);
    EXPECT_EQ(check_key({"\xd0\x80", 1, true}), NameFault::None);
    EXPECT_EQ(check_key({"\xe2\x82\x82", 1, true}), NameFault::None);
}

TEST(CheckLabel, IsLikeAKeyButMayBeEmpty) {
    EXPECT_EQ(check_label(ascii("")), NameFault::None);
    EXPECT_EQ(check_label(ascii("POST /payments")), NameFault::None);
    EXPECT_EQ(check_label(ascii("  ")), NameFault::Blank);
    EXPECT_EQ(check_label(ascii("a\nb")), NameFault::ControlCharacter);
    EXPECT_EQ(check_label(ascii(std::string(256, 'x'))), NameFault::TooLong);
}

// Joins into a buffer of exactly joined_size(), guarded so that one byte too many shows.
std::string join(const std::vector<std::string_view>& parts) {
    const std::size_t size = joined_size(parts.data(), parts.size());
    std::string buffer(size + 1, '\x01');
    join_parts(parts.data(), parts.size(), buffer.data());
    EXPECT_EQ(buffer.find('\x01'), size) << "joined_size() is not what join_parts() wrote";
    return buffer.substr(0, size);
}

TEST(JoinParts, SeparatesWithColons) {
    EXPECT_EQ(join({"order-payment", "order-123"}), "order-payment:order-123");
    EXPECT_EQ(join({"one"}), "one");
    EXPECT_EQ(join({"", "", ""}), "::");
    EXPECT_EQ(join({}), "");
}

TEST(JoinParts, EscapesSeparatorsInsideParts) {
    EXPECT_EQ(join({"a:b", "c"}), R"(a\:b:c)");
    EXPECT_EQ(join({R"(a\)", "b"}), R"(a\\:b)");
    EXPECT_EQ(join({R"(\:)"}), R"(\\\:)");
}

// Every text of up to `length` of the characters that could be confused.
std::vector<std::string> texts_up_to(std::size_t length) {
    std::vector<std::string> all = {""};
    for (std::size_t from = 0; all[from].size() < length; ++from) {
        for (const char c : {'a', ':', '\\'}) all.push_back(all[from] + c);
    }
    return all;
}

TEST(JoinParts, DifferentListsNeverGiveTheSameKey) {
    const std::vector<std::string> texts = texts_up_to(2);
    std::vector<std::vector<std::string_view>> lists;
    for (const auto& a : texts) {
        lists.push_back({a});
        for (const auto& b : texts) {
            lists.push_back({a, b});
            for (const auto& c : texts) lists.push_back({a, b, c});
        }
    }
    std::map<std::string, std::vector<std::string_view>> seen;
    for (const auto& list : lists) {
        EXPECT_TRUE(seen.emplace(join(list), list).second) << "twice: " << join(list);
    }
    EXPECT_EQ(seen.size(), 13u + 13u * 13u + 13u * 13u * 13u);
}

}  // namespace
}  // namespace idem::core
