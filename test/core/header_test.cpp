// The Idempotency-Key field. Cases follow the rules of RFC 8941 and 9651 for an Item that is a
// String, and our lenient form for clients that send the key without quotes.
#include "core/header.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace idem::core {
namespace {

using namespace std::string_view_literals;

std::optional<std::string> parse(std::string_view header) {
    std::string out(header.size() + 1, '\x01');  // one more than promised, as a guard
    const long length = parse_key_field(header, out.data());
    EXPECT_EQ(out.back(), '\x01') << "wrote past the end for: " << header;
    if (length < 0) return std::nullopt;
    return out.substr(0, static_cast<std::size_t>(length));
}

void expect_key(std::string_view header, std::string_view key) {
    EXPECT_EQ(parse(header), std::optional<std::string>(key)) << "header: " << header;
}

void expect_neither(std::string_view header) {
    EXPECT_EQ(parse(header), std::nullopt) << "header: " << header;
}

using Texts = std::initializer_list<std::string_view>;

void expect_none_is_key(Texts headers) {
    for (const auto header : headers) expect_neither(header);
}

void expect_parameters(Texts texts) {
    for (const auto text : texts) expect_key("\"k\"" + std::string(text), "k");
}

void refuse_parameters(Texts texts) {
    for (const auto text : texts) expect_neither("\"k\"" + std::string(text));
}

TEST(ParseKeyField, ReadsStrings) {
    expect_key(R"("8e03978e-40d5-43e8-bc93-6894a57f9324")", "8e03978e-40d5-43e8-bc93-6894a57f9324");
    expect_key(R"("a b")", "a b");
    expect_key(R"(" a ")", " a ");
    expect_key(R"("a,b;c=d")", "a,b;c=d");
    expect_key(R"("foo \"bar\" \\ baz")", R"(foo "bar" \ baz)");
    expect_key(R"("~ !#[]")", "~ !#[]");
}

TEST(ParseKeyField, PaddingBelongsToTheField) {
    expect_key("  \"a\"\t ", "a");
    expect_key("\t a \t", "a");
}

TEST(ParseKeyField, RefusesBrokenStrings) {
    expect_none_is_key({R"(")"sv, R"("a)"sv, R"(a")"sv, R"("a""b")"sv, R"("a"b)"sv, R"("a" b)"sv});
    expect_none_is_key({R"("foo \,")"sv, R"("foo \n")"sv, R"("foo \")"sv, R"("foo \)"sv});
    expect_none_is_key({"\"\t\""sv, "\"a\nb\""sv, "\"a\0b\""sv, "\"\x7f\""sv, "\"f\xc3\xbc\""sv});
}

TEST(ParseKeyField, RefusesLists) {
    expect_none_is_key({R"("a", "b")"sv, R"("a","b")"sv, R"("a",)"sv, R"(a, "b")"sv, "a, b"sv});
}

TEST(ParseKeyField, RefusesInvalidKeys) {
    for (const auto header : {""sv, " "sv, "\t"sv, R"("")"sv, R"("  ")"sv}) expect_neither(header);
    const std::string longest(255, 'x');
    expect_key(longest, longest);
    expect_key('"' + longest + '"', longest);
    expect_neither(longest + "x");
    expect_neither('"' + longest + "x\"");
}

TEST(ParseKeyField, LengthIsThatOfTheUnescapedKey) {
    std::string escaped;
    for (int i = 0; i < 255; ++i) escaped += R"(\")";
    expect_key('"' + escaped + '"', std::string(255, '"'));
    expect_neither('"' + escaped + R"(\"")");
}

TEST(ParseKeyFieldParameters, HaveNames) {
    expect_parameters({";a"sv, ";a;b"sv, ";  a; b"sv, ";*"sv, ";a_-.*9"sv, ";a;a=1;a=2"sv});
    refuse_parameters({";"sv, ";a;"sv, " ;a"sv, ";a ;b"sv, ";\ta"sv, "a=1"sv, ";a,b"sv, ";=1"sv});
    refuse_parameters({";A"sv, ";aB"sv, ";1"sv, ";-a"sv, ";\"a\""sv});
}

TEST(ParseKeyFieldParameters, RefuseInvalidBareItems) {
    refuse_parameters({";a="sv, ";a= 1"sv, ";a =1"sv, ";a=1 2"sv, ";a=1,"sv, ";a=1;"sv});
    refuse_parameters({";a=(1 2)"sv, ";a=()"sv, ";a=\0"sv, ";a=,"sv, ";a=\xc3\xbc"sv});
}

TEST(ParseKeyFieldParameters, Numbers) {
    expect_parameters({";a=1"sv, ";a=-1"sv, ";a=007"sv, ";a=123456789012345"sv});
    expect_parameters({";a=1.5"sv, ";a=-123456789012.123"sv});
    refuse_parameters({";a=-"sv, ";a=--1"sv, ";a=+1"sv, ";a=1-"sv, ";a=1234567890123456"sv});
    refuse_parameters({";a=1."sv, ";a=-.5"sv, ";a=.5"sv, ";a=1.2345"sv, ";a=1.2.3"sv, ";a=1e5"sv});
    refuse_parameters({";a=1234567890123.1"sv});
}

TEST(ParseKeyFieldParameters, StringsAndTokens) {
    expect_parameters({R"(;a="")"sv, R"(;a="x;y\"\\")"sv, ";a=tok"sv, ";a=*t:/%"sv});
    refuse_parameters({R"(;a=")"sv, R"(;a="x\y")"sv, ";a=\"\x7f\""sv, ";a=\"\t\""sv});
    refuse_parameters({";a='x'"sv, ";a=x\"y\""sv, ";a=/x"sv});
}

TEST(ParseKeyFieldParameters, ByteSequences) {
    expect_parameters({";a=::"sv, ";a=:aGk=:"sv, ";a=:aGk:"sv, ";a=:+/09:"sv});
    refuse_parameters({";a=:"sv, ";a=:aGk"sv, ";a=:a=k:"sv, ";a=:a-_:"sv, ";a=:a k:"sv});
}

TEST(ParseKeyFieldParameters, Booleans) {
    expect_parameters({";a=?0"sv, ";a=?1"sv});
    refuse_parameters({";a=?"sv, ";a=?2"sv, ";a=?01"sv, ";a=?true"sv});
}

TEST(ParseKeyFieldParameters, DatesAndDisplayStrings) {
    expect_parameters({";a=@1659578233"sv, ";a=@-1"sv, R"(;a=%"")"sv, R"(;a=%"f%c3%bc")"sv});
    refuse_parameters({";a=@"sv, ";a=@1.5"sv, ";a=@x"sv, ";a=@1234567890123456"sv});
    refuse_parameters({";a=%"sv, ";a=%x"sv, R"(;a=%")"sv, R"(;a=%"%c")"sv, R"(;a=%"%C3%BC")"sv});
    refuse_parameters({R"(;a=%"%zz")"sv, R"(;a=%"%c3)"sv, ";a=%\"\t\""sv});
}

TEST(ParseKeyField, ReadsBareValues) {
    for (const auto header : {"8e03978e-40d5-43e8-bc93-6894a57f9324"sv, "'foo'"sv, "a:b/c=d"sv,
                              ":aGk=:"sv, "?1"sv, "42"sv, "!~"sv}) {
        expect_key(header, header);
    }
}

TEST(ParseKeyField, RefusesBareValuesThatCouldMeanSomethingElse) {
    for (const auto header : {"a b"sv, "a\tb"sv, "a,b"sv, "a;b"sv, R"(a\b)"sv, R"(a"b)"sv,
                              "\xc3\xbc"sv, "a\x7f"sv, "a\0"sv}) {
        expect_neither(header);
    }
}

TEST(SameHeader, IgnoresAsciiLetterCaseOnly) {
    EXPECT_TRUE(same_header("Set-Cookie", "sET-cOOKIE"));
    EXPECT_TRUE(same_header("", ""));
    EXPECT_FALSE(same_header("Date", "Data"));
    EXPECT_FALSE(same_header("Date", "Dat"));
    EXPECT_FALSE(same_header("Dat", "Date"));
    // Characters 32 apart from each other that are no letters: '[' and '{', '@' and '`'.
    EXPECT_FALSE(same_header("[", "{"));
    EXPECT_FALSE(same_header("@", "`"));
    EXPECT_FALSE(same_header("\xc4", "\xe4"));
}

TEST(IsHeaderName, IsATokenOfHttp) {
    for (const auto name : {"Date"sv, "X-Request-Id"sv, "a"sv, "!#$%&'*+-.^_`|~09azAZ"sv}) {
        EXPECT_TRUE(is_header_name(name)) << name;
    }
    for (const auto name : {""sv, "a b"sv, "a:"sv, "a\n"sv, "a\r\nb"sv, "\"a\""sv, "a/b"sv, "(a)"sv,
                            "a,b"sv, "\xc3\xbc"sv, "a\0"sv, "\x7f"sv}) {
        EXPECT_FALSE(is_header_name(name)) << name;
    }
}

TEST(CompareHeaders, OrdersByAsciiLettersWhateverTheirCase) {
    EXPECT_EQ(compare_headers("Set-Cookie", "sET-cOOKIE"), 0);
    EXPECT_EQ(compare_headers("", ""), 0);
    EXPECT_LT(compare_headers("ABC", "abd"), 0);
    EXPECT_GT(compare_headers("abd", "ABC"), 0);
    EXPECT_LT(compare_headers("Ab", "aBc"), 0);
    EXPECT_GT(compare_headers("aBc", "Ab"), 0);
    EXPECT_NE(compare_headers("[", "{"), 0);
}

TEST(IsHeaderValue, HasNoControlCharacterButTheTab) {
    for (const auto value : {""sv, "/orders/1"sv, "a\tb"sv, " a "sv, "\xc3\xbc"sv, "\xc2\xa0"sv}) {
        EXPECT_TRUE(is_header_value(value, true)) << value;
    }
    for (const auto value : {"a\r\nSet-Cookie: s=1"sv, "\r"sv, "\n"sv, "a\0"sv, "\x01"sv, "\x1f"sv,
                             "\x7f"sv, "\xc2\x80"sv, "a\xc2\x85"sv, "\xc2\x9f"sv}) {
        EXPECT_FALSE(is_header_value(value, true)) << value;
    }
    // Bytes of an unknown encoding: only ASCII can be recognized.
    EXPECT_TRUE(is_header_value("\xc2\x85", false));
    EXPECT_FALSE(is_header_value("\xc2\n", false));
}

TEST(DroppedHeaders, AreHeaderNames) {
    for (const auto name : kDroppedHeaders) EXPECT_TRUE(is_header_name(name)) << name;
}

}  // namespace
}  // namespace idem::core
