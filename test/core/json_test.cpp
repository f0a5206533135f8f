#include "core/json.hpp"

#include <gtest/gtest.h>

#include <string>

namespace idem::core {
namespace {

using namespace std::string_literals;

FingerprintFault fault_of(std::string_view text, bool (*interrupted)() = nullptr) {
    JsonValue value;
    return parse_json(text, interrupted, value);
}

// The string that `text` denotes.
std::string decoded(std::string_view text) {
    JsonValue value;
    EXPECT_EQ(parse_json(text, nullptr, value), FingerprintFault::None) << text;
    const auto* string = std::get_if<std::string>(&value.data);
    return string != nullptr ? *string : "not a string";
}

std::string repeated(std::string_view part, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += part;
    return out;
}

std::string nested_arrays(int depth) {
    return repeated("[", depth) + repeated("]", depth);
}

std::string nested_objects(int depth) {
    return repeated("{\"a\":", depth) + "1" + repeated("}", depth);
}

// The cases follow the y_ and n_ files of JSONTestSuite (Nicolas Seriot, "Parsing JSON is a
// Minefield").
TEST(Json, AcceptsWhatRfc8259Allows) {
    const std::string accepted[] = {
        "null", "true", "false", "0", "-0", "\"\"", "[]", "{}", " [ ] ", "\t{\n}\r",
        // Numbers
        "123", "-1", "-123", "0.5", "123.456", "1e5", "1E5", "1e+5", "1e-5", "1E+05", "0e1", "0e+1",
        "-0.0", "123.456e78", "123e65", "20e1", "1.5E-0",
        "-0.000000000000000000000000000000000000000000000000000000000000000000000000000001",
        "100000000000000000000000000000000000000000000000000000", "123123e100000",
        // Structures
        "[[]   ]", "[\"\"]", "[1,null,\"a\",{}]", " [1]", "[1\n]", "[2] ", "[\"a\" , \"b\"]",
        R"({"":0})", R"({"a":[]})", R"({"a":"b","a":"b"})", R"({ "min": -1.0e+28, "max": 1 })",
        "{\n\"a\": \"b\"\n}", R"({"foo\u0000bar": 42})", "[[[[[[]]]]]]",
        // Strings
        R"("\"\\\/\b\f\n\r\t")", R"("\u0060\u012a\u12AB")", R"("\ud83d\ude39\u005C")",
        R"("\uDBFF\uDFFF")", R"("\u0000")", R"("\uFFFF")", R"("a/*b*/c/*d//e")", R"("\\u0000")",
        "\"\x7f\"", "\"\xc2\x80\"", "\"\xdf\xbf\"", "\"\xe0\xa0\x80\"", "\"\xed\x9f\xbf\"",
        "\"\xee\x80\x80\"", "\"\xef\xbf\xbf\"", "\"\xf0\x90\x80\x80\"", "\"\xf4\x8f\xbf\xbf\"",
        "\"\xe2\x82\xac\xf0\x9d\x84\x9e\"", "\"\xe2\x80\xa8\""};
    for (const std::string& text : accepted) {
        EXPECT_EQ(fault_of(text), FingerprintFault::None) << text;
    }
}

TEST(Json, RefusesBrokenStructures) {
    const std::string refused[] = {"",
                                   " ",
                                   "[",
                                   "]",
                                   "{",
                                   "}",
                                   "[1",
                                   "[1,",
                                   "[,1]",
                                   "[1,]",
                                   "[1,,2]",
                                   "[1 2]",
                                   "[1]]",
                                   "[1]x",
                                   "[\"a\"",
                                   "[\"\",",
                                   "[3[4]]",
                                   "[1:2]",
                                   "[}",
                                   "{]",
                                   "[1}",
                                   "{\"a\"}",
                                   "{\"a\":}",
                                   "{\"a\":1",
                                   "{\"a\":1,}",
                                   "{\"a\":1,,\"b\":2}",
                                   "{\"a\" 1}",
                                   "{\"a\"::1}",
                                   "{\"a\",1}",
                                   "{a:1}",
                                   "{1:1}",
                                   "{'a':1}",
                                   "{null:1}",
                                   "{:1}",
                                   "{,\"a\":1}",
                                   "{\"a\":1 \"b\":2}",
                                   "{\"a\":1}#",
                                   "{\"a\":1}/**/",
                                   "[1]//",
                                   "/**/[1]",
                                   "{\"a\":/*c*/1}",
                                   "1 2",
                                   "[][]",
                                   "{}}",
                                   "*",
                                   "<null>",
                                   "[\"a\"\"b\"]",
                                   "\xef\xbb\xbf{}",
                                   "\xe5",
                                   "\xa0[]",
                                   "[\f]",
                                   "[\v]",
                                   "\xc2\xa0[]",
                                   "[]\0"s,
                                   "\0"s,
                                   "[\0]"s,
                                   "nul",
                                   "nulll",
                                   "tru",
                                   "truth",
                                   "True",
                                   "NULL",
                                   "fals",
                                   "undefined",
                                   "n",
                                   "[nul]",
                                   "nulltrue"};
    for (const std::string& text : refused) {
        EXPECT_EQ(fault_of(text), FingerprintFault::BadJson) << text;
    }
}

TEST(Json, RefusesBrokenNumbers) {
    const std::string refused[] = {"-",
                                   "+",
                                   "+1",
                                   "++1",
                                   "--1",
                                   "- 1",
                                   "-a",
                                   "01",
                                   "-01",
                                   "00",
                                   "012",
                                   "1.",
                                   "-2.",
                                   ".5",
                                   "-.5",
                                   "1.e1",
                                   "0.e1",
                                   "0.1.2",
                                   "1..2",
                                   "1e",
                                   "1E",
                                   "1e+",
                                   "1e-",
                                   "0e",
                                   "0E+",
                                   "0.3e",
                                   "0.3e+",
                                   "1eE2",
                                   "1e1.5",
                                   "1e+-2",
                                   "1 000",
                                   "1,5",
                                   "1_000",
                                   "0x1",
                                   "0x42",
                                   "1a",
                                   "1.2a-3",
                                   "Inf",
                                   "Infinity",
                                   "-Infinity",
                                   "NaN",
                                   "-NaN",
                                   "1.8011670033376514H-308",
                                   "-1x",
                                   "[1.]",
                                   "\xef\xbc\x91",
                                   "1\0"s};
    for (const std::string& text : refused) {
        EXPECT_EQ(fault_of(text), FingerprintFault::BadJson) << text;
    }
}

TEST(Json, RefusesBrokenStrings) {
    const std::string refused[] = {"\"", "\"a", "'a'", "a", "\"\\\"", "\"\\", "\"\\\\\\\"",
                                   R"("\a")", R"("\x00")", R"("\U0041")", R"("\')", R"("\0")",
                                   R"("\u")", R"("\u1")", R"("\u12")", R"("\u123")", R"("\u123g")",
                                   R"("\u 123")", R"("\u-123")", "\"\\u00A", "\"\\u",
                                   "\"\\\xe2\x82\xac\"", "\"\t\"", "\"\n\"", "\"\0\""s, "\"\x1f\"",
                                   R"("\)"
                                   "\0\""s,
                                   // Lone surrogates
                                   R"("\ud800")", R"("\udc00")", R"("\ud800x")", R"("\ud800\n")",
                                   R"("\ud800\ud800")", R"("\udc00\ud800")", R"("\ud800\u0041")",
                                   R"("\ud800\)", R"("\ud800\u")", R"("\uD834\uDd")"};
    for (const std::string& text : refused) {
        EXPECT_EQ(fault_of(text), FingerprintFault::BadJson) << text;
    }
}

TEST(Json, RefusesWhatIsNotUtf8) {
    const std::string refused[] = {"\x80",
                                   "\xbf",
                                   "\xc0\xaf",
                                   "\xc1\xbf",  // stray and overlong, two bytes
                                   "\xe0\x80\xaf",
                                   "\xe0\x9f\xbf",  // overlong, three bytes
                                   "\xed\xa0\x80",
                                   "\xed\xbf\xbf",  // surrogates
                                   "\xf0\x80\x80\xaf",
                                   "\xf0\x8f\xbf\xbf",  // overlong, four bytes
                                   "\xf4\x90\x80\x80",
                                   "\xf5\x80\x80\x80",
                                   "\xfe",
                                   "\xff",  // above U+10FFFF
                                   "\xc3",
                                   "\xe2\x82",
                                   "\xf0\x9d\x84",  // cut short
                                   "\xc3(",
                                   "\xe2(\xa1",
                                   "\xe2\x82(",
                                   "\xf0(\x8c\xbc",
                                   "\xf0\x90(\xbc",
                                   "\xf0\x90\x8c("};
    for (const std::string& bytes : refused) {
        EXPECT_EQ(fault_of("\"" + bytes + "\""), FingerprintFault::BadJson) << bytes;
        EXPECT_EQ(fault_of("{\"" + bytes + "\":1}"), FingerprintFault::BadJson) << bytes;
        EXPECT_EQ(fault_of("\"" + bytes), FingerprintFault::BadJson) << bytes;
    }
}

TEST(Json, DecodesStrings) {
    EXPECT_EQ(decoded(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
    EXPECT_EQ(decoded(R"("a\u0041\u00e9\u20AC\uD834\uDD1Ez")"), "aA\u00e9\u20ac\U0001D11Ez");
    EXPECT_EQ(decoded(R"("\u0000")"), "\0"s);
    EXPECT_EQ(decoded(R"("\u007f\u0080\u07ff\u0800\uffff\ud800\udc00\udbff\udfff")"),
              "\x7f\u0080\u07ff\u0800\uffff\U00010000\U0010FFFF");
    EXPECT_EQ(decoded("\"caf\u00e9 \u20ac \U0001F600\""), "caf\u00e9 \u20ac \U0001F600");
}

TEST(Json, KeepsTheTextOfNumbers) {
    JsonValue value;
    ASSERT_EQ(parse_json(" -12.500E+03 ", nullptr, value), FingerprintFault::None);
    EXPECT_EQ(std::get<JsonNumber>(value.data).text, "-12.500E+03");
}

TEST(Json, OfEqualNamesTheLastWins) {
    JsonValue value;
    ASSERT_EQ(parse_json(R"({"b":1,"a":2,"b":3,"\u0062":4,"a":5})", nullptr, value),
              FingerprintFault::None);
    const auto& members = std::get<JsonObject>(value.data);
    ASSERT_EQ(members.size(), 2u);
    EXPECT_EQ(members[0].name, "a");
    EXPECT_EQ(std::get<JsonNumber>(members[0].value.data).text, "5");
    EXPECT_EQ(members[1].name, "b");
    EXPECT_EQ(std::get<JsonNumber>(members[1].value.data).text, "4");
}

TEST(Json, NestsToTheLimitAndNoDeeper) {
    EXPECT_EQ(fault_of(nested_arrays(kMaxJsonDepth)), FingerprintFault::None);
    EXPECT_EQ(fault_of(nested_objects(kMaxJsonDepth)), FingerprintFault::None);
    EXPECT_EQ(fault_of(nested_arrays(kMaxJsonDepth + 1)), FingerprintFault::TooDeep);
    EXPECT_EQ(fault_of(nested_objects(kMaxJsonDepth + 1)), FingerprintFault::TooDeep);
    EXPECT_EQ(fault_of(repeated("[", 1000000)), FingerprintFault::TooDeep);
}

TEST(Json, DepthIsNotCountedAcrossSiblings) {
    const std::string deep = nested_arrays(kMaxJsonDepth - 1);
    EXPECT_EQ(fault_of("[" + deep + "," + deep + "]"), FingerprintFault::None);
    EXPECT_EQ(fault_of("[" + repeated("[],", 5000) + "[]]"), FingerprintFault::None);
}

int polls = 0;
bool count_polls() {
    ++polls;
    return false;
}

TEST(Json, HonoursAnInterrupt) {
    const std::string large = "[" + repeated("1,", 20000) + "1]";
    EXPECT_EQ(fault_of(large, [] { return true; }), FingerprintFault::Interrupted);
    polls = 0;
    EXPECT_EQ(fault_of(large, count_polls), FingerprintFault::None);
    EXPECT_GE(polls, 4);
    EXPECT_LE(polls, 20);
}

TEST(Json, SortsByUtf16CodeUnits) {
    // U+1F600 is D83D DE00 in UTF-16: after U+D7FF, before U+E000. By code point it would be last.
    const std::string ordered[] = {
        "",           "\n",     "A",      "AA",         "a",          "\u0080",
        "\u07ff",     "\u0800", "\ud7ff", "\U00010000", "\U0001F600", "\U0001F600a",
        "\U0010FFFF", "\ue000", "\uefff", "\uf000",     "\ufb33",     "\uffff"};
    const std::size_t count = std::size(ordered);
    for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t j = 0; j < count; ++j) {
            EXPECT_EQ(utf16_less(ordered[i], ordered[j]), i < j) << i << " and " << j;
        }
    }
}

}  // namespace
}  // namespace idem::core
