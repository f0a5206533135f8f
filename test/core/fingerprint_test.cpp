#include "core/fingerprint.hpp"

#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace idem::core {
namespace {

// ---- canonical form ----

// The course of a whole request is in sql/11_fingerprint.sql.

std::string spelled(const Decimal& number) {
    std::string out(number.digits.size() + kNumberOverhead, '?');
    out.resize(spell_number(number, out.data()));
    return out;
}

// The value of a text of the form [-]digits[.digits][e[+-]digits].
std::string canonical(std::string_view text) {
    const bool negative = text.front() == '-';
    if (negative) text.remove_prefix(1);
    const std::string_view mantissa = text.substr(0, text.find_first_of("eE"));
    std::string digits(mantissa);
    const std::size_t point = std::min(digits.find('.'), digits.size());
    if (point < digits.size()) digits.erase(point, 1);
    auto exponent = static_cast<std::int64_t>(point) - 1;
    if (mantissa.size() < text.size()) exponent += std::atoll(&text[mantissa.size() + 1]);
    return spelled({negative, digits, exponent});
}

std::string escaped(char c) {
    std::string out(kLongestEscape, '?');
    out.resize(spell_escape(c, out.data()));
    return out;
}

struct Sample {
    std::string_view written;
    std::string_view canonical;
};

// RFC 8785, appendix B, each double as the shortest decimal text that denotes it.
TEST(Canonical, NumberSamplesOfRfc8785) {
    const std::string_view samples[] = {"0",
                                        "5e-324",
                                        "-5e-324",
                                        "1.7976931348623157e+308",
                                        "-1.7976931348623157e+308",
                                        "9007199254740992",
                                        "-9007199254740992",
                                        "295147905179352830000",
                                        "9.999999999999997e+22",
                                        "1e+23",
                                        "1.0000000000000001e+23",
                                        "999999999999999700000",
                                        "999999999999999900000",
                                        "1e+21",
                                        "9.999999999999997e-7",
                                        "0.000001",
                                        "333333333.3333332",
                                        "333333333.33333325",
                                        "333333333.3333333",
                                        "333333333.3333334",
                                        "333333333.33333343",
                                        "-0.0000033333333333333333",
                                        "1424953923781206.2"};
    for (const std::string_view sample : samples) EXPECT_EQ(canonical(sample), sample);
}

TEST(Canonical, OneNumberHasOneForm) {
    const Sample samples[] = {
        {"-0", "0"},
        {"0.000", "0"},
        {"-0e-5", "0"},
        {"1.0", "1"},
        {"1.00", "1"},
        {"1e0", "1"},
        {"10e-1", "1"},
        {"0.01E+2", "1"},
        {"1e-000", "1"},
        {"0001.2300", "1.23"},
        {"-1.50", "-1.5"},
        {"100", "100"},
        {"1e2", "100"},
        {"4.50", "4.5"},
        {"2e-3", "0.002"},
        {"1E30", "1e+30"},
        {"0.000000000000000000000000001", "1e-27"},
        {"12345e-3", "12.345"},
        {"0.0000001", "1e-7"},
        {"0.00000123", "0.00000123"},
        {"0.000000123", "1.23e-7"},
        {"100000000000000000000", "100000000000000000000"},
        {"1000000000000000000000", "1e+21"},
        {"123456789012345678901", "123456789012345678901"},
        {"1234567890123456789012", "1.234567890123456789012e+21"},
        {"123456789012345678901.5", "123456789012345678901.5"},
    };
    for (const Sample& sample : samples) {
        EXPECT_EQ(canonical(sample.written), sample.canonical) << sample.written;
    }
}

// Here RFC 8785 would round to a double, and two different amounts could become one.
TEST(Canonical, KeepsDigitsThatADoubleWouldLose) {
    const Sample samples[] = {
        {"333333333.33333329", "333333333.33333329"},        // RFC: ...33333.3333333
        {"9007199254740993", "9007199254740993"},            // RFC: ...992
        {"295147905179352825856", "295147905179352825856"},  // RFC: ...830000
        {"0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"},
        {"1e400", "1e+400"},   // RFC: an error
        {"1e-400", "1e-400"},  // RFC: 0
        {"123.4567890123456789e-400", "1.234567890123456789e-398"},
    };
    for (const Sample& sample : samples) {
        EXPECT_EQ(canonical(sample.written), sample.canonical) << sample.written;
    }
}

TEST(Canonical, NoDigitsAreZero) {
    EXPECT_EQ(spelled({false, "", 0}), "0");
    EXPECT_EQ(spelled({true, "0000", 7}), "0");
}

// An exponent costs its own digits, never the zeros that it stands for.
TEST(Canonical, NoExponentExpandsANumber) {
    EXPECT_EQ(spelled({false, "1", 131071}), "1e+131071");
    EXPECT_EQ(spelled({true, "12", INT64_MIN}), "-1.2e-9223372036854775808");
    EXPECT_EQ(spelled({false, "1", INT64_MAX}), "1e+9223372036854775807");
    for (std::int64_t exponent = -40; exponent <= 40; ++exponent) {
        EXPECT_LE(spelled({true, "12", exponent}).size(), 2 + kNumberOverhead);
    }
}

// However a double is written, it has one form, and that form denotes the same double. Half of the
// samples have magnitudes at which the notation changes.
TEST(Canonical, RandomDoublesSurviveTheirNotation) {
    std::mt19937_64 random(8785);
    for (int i = 0; i < 20000; ++i) {
        const std::uint64_t bits = random();
        double number;
        std::memcpy(&number, &bits, sizeof number);
        if (i % 2 == 0)
            number = std::ldexp(static_cast<double>(bits), static_cast<int>(i % 160) - 120);
        if (!std::isfinite(number)) continue;
        char fixed[1200];
        char scientific[64];
        *std::to_chars(fixed, std::end(fixed), number, std::chars_format::fixed).ptr = '\0';
        *std::to_chars(scientific, std::end(scientific), number, std::chars_format::scientific)
             .ptr = '\0';
        const std::string written = canonical(scientific);
        EXPECT_EQ(std::strtod(written.c_str(), nullptr), number);
        EXPECT_EQ(canonical(written), written);
        // Larger integers are printed with all their digits, more than the shortest form has.
        if (std::fabs(number) < 9007199254740992.0) {
            EXPECT_EQ(canonical(fixed), written);
        }
    }
}

TEST(Canonical, EscapesOnlyAsNeeded) {
    const Sample samples[] = {{"\b", "\\b"},      {"\t", "\\t"},       {"\n", "\\n"},
                              {"\f", "\\f"},      {"\r", "\\r"},       {"\"", "\\\""},
                              {"\\", "\\\\"},     {"\x01", "\\u0001"}, {"\x0b", "\\u000b"},
                              {"\x1f", "\\u001f"}};
    for (const Sample& sample : samples) {
        EXPECT_EQ(plain_length(sample.written), 0u);
        EXPECT_EQ(escaped(sample.written.front()), sample.canonical);
        EXPECT_EQ(escape_length(sample.written.front()), sample.canonical.size());
    }
    EXPECT_EQ(escaped('\0'), "\\u0000");
    const std::string_view plain = "/\x7f\u2028<\u00e9\U0001F600 ";
    EXPECT_EQ(plain_length(plain), plain.size());
    EXPECT_EQ(plain_length("ab\"c"), 2u);
    EXPECT_EQ(plain_length(""), 0u);
}

// Wherever it stands, and whatever stands beside it.
TEST(Canonical, FindsTheFirstByteToEscape) {
    for (int c = 0; c < 256; ++c) {
        const bool special = c < 0x20 || c == '"' || c == '\\';
        for (const char other : {' ', '!', '#', '[', ']', '\x7f', '\x80', '\xa2', '\xdc', '\xff'}) {
            for (std::size_t at = 0; at < 20; ++at) {
                std::string text(20, other);
                text[at] = static_cast<char>(c);
                EXPECT_EQ(plain_length(text), special ? at : text.size()) << c << " at " << at;
            }
        }
    }
}

TEST(Canonical, SortsByUtf16CodeUnits) {
    // U+1F600 is D83D DE00 in UTF-16: after U+D7FF, before U+E000. By code point it would be last.
    const std::string ordered[] = {
        "",           "\n",     "A",      "AA",         "a",          "\u0080",
        "\u07ff",     "\u0800", "\ud7ff", "\U00010000", "\U0001F600", "\U0001F600a",
        "\U0010FFFF", "\ue000", "\uefff", "\uf000",     "\ufb33",     "\uffff"};
    const std::size_t count = std::size(ordered);
    for (const std::string prefix : {"", "b", "1234567", "12345678", "long enough for two words"}) {
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t j = 0; j < count; ++j) {
                EXPECT_EQ(utf16_less(prefix + ordered[i], prefix + ordered[j]), i < j)
                    << prefix << i << " and " << j;
            }
        }
    }
}

// ---- fields that are left out ----

// The course of a whole request is in sql/11_fingerprint.sql.

// A place in a request: names of members, and "[*]" for each element of an array.
using Place = std::vector<std::string_view>;

// Whether the entries exclude that place, or one on the way to it.
bool excluded(std::vector<std::string_view> entries, const Place& place) {
    for (const std::string_view entry : entries) EXPECT_TRUE(valid_exclude(entry)) << entry;
    std::string room(room_for_names(entries.data(), entries.size()), '\0');
    const Excludes excludes = sort_excludes(entries.data(), entries.size(), room.data());
    Paths paths = root_paths(excludes);
    for (const std::string_view step : place) {
        const bool element = step == "[*]";
        if (!element && names_exclude(excludes, step)) return true;
        paths = element ? element_paths(paths) : member_paths(paths, step);
        if (paths_exclude(paths)) return true;
    }
    return false;
}

TEST(Exclude, APlainNameGoesAtEveryDepth) {
    for (const Place& place : {Place{"ts"}, {"a", "ts"}, {"a", "[*]", "ts"}, {"[*]", "[*]", "ts"}})
        EXPECT_TRUE(excluded({"ts"}, place));
    EXPECT_FALSE(excluded({"ts"}, {"tss"}));
    EXPECT_FALSE(excluded({"ts"}, {"t"}));
}

TEST(Exclude, APlainNameIgnoresAsciiLetterCaseOnly) {
    EXPECT_TRUE(excluded({"Trace_Id"}, {"trace_id"}));
    EXPECT_TRUE(excluded({"Trace_Id"}, {"TRACE_ID"}));
    EXPECT_FALSE(excluded({"Trace_Id"}, {"traceId"}));
    EXPECT_TRUE(excluded({"\u00e9t\u00e9"}, {"\u00e9T\u00e9"}));
    EXPECT_FALSE(excluded({"\u00e9t\u00e9"}, {"\u00c9t\u00e9"}));
    EXPECT_FALSE(excluded({"a@z"}, {"A`Z"}));  // one bit, but no letter
    EXPECT_TRUE(excluded({"a@z"}, {"A@Z"}));
}

TEST(Exclude, ANameInQuotesIsTakenLiterally) {
    EXPECT_TRUE(excluded({"\"a.b\""}, {"a.b"}));
    EXPECT_TRUE(excluded({"\"a.b\""}, {"c", "[*]", "A.B"}));
    EXPECT_FALSE(excluded({"\"a.b\""}, {"a", "b"}));
    EXPECT_FALSE(excluded({"\"a.b\""}, {"\"a.b\""}));
    EXPECT_TRUE(excluded({"\"a[*]\""}, {"a[*]"}));
    EXPECT_FALSE(excluded({"\"a[*]\""}, {"a", "[*]"}));
    EXPECT_TRUE(excluded({"\"$.a\""}, {"$.a"}));
    EXPECT_FALSE(excluded({"\"$.a\""}, {"a"}));
    EXPECT_TRUE(excluded({"\" a \""}, {" a "}));
    EXPECT_TRUE(excluded({"\"a\"", "$.b", "\"c.d\""}, {"c.d"}));
}

TEST(Exclude, QuotesHaveTheEscapesOfJson) {
    EXPECT_TRUE(excluded({R"("a\"b")"}, {"a\"b"}));
    EXPECT_TRUE(excluded({R"("a\\b")"}, {"a\\b"}));
    EXPECT_TRUE(excluded({R"("\/\b\f\n\r\t")"}, {"/\b\f\n\r\t"}));
    EXPECT_TRUE(excluded({R"("\u0041\u00e9\u20ac")"}, {"A\u00e9\u20ac"}));
    EXPECT_TRUE(excluded({R"("\ud83d\uDE00")"}, {"\U0001F600"}));
}

TEST(Exclude, APathRemovesOnePlace) {
    EXPECT_TRUE(excluded({"$.a.c.b"}, {"a", "c", "b"}));
    EXPECT_TRUE(excluded({"$.a"}, {"a", "c", "b"}));  // with its contents
    for (const Place& place : {Place{"b"}, {"a", "b"}, {"a", "c"}, {"a", "c", "b2"}, {"c", "b"}})
        EXPECT_FALSE(excluded({"$.a.c.b"}, place));
}

TEST(Exclude, APathMindsLetterCase) {
    EXPECT_TRUE(excluded({"$.a.B"}, {"a", "B"}));
    EXPECT_FALSE(excluded({"$.a.B"}, {"a", "b"}));
    EXPECT_FALSE(excluded({"$.a.B"}, {"A", "B"}));
}

TEST(Exclude, APathTakesNamesApart) {
    EXPECT_FALSE(excluded({"$.a.b"}, {"a.b"}));
    EXPECT_FALSE(excluded({"$.a[*]"}, {"a[*]"}));
    EXPECT_FALSE(excluded({"$.a"}, {""}));
}

TEST(Exclude, AStarMatchesEachElement) {
    EXPECT_TRUE(excluded({"$.a[*].b"}, {"a", "[*]", "b"}));
    EXPECT_FALSE(excluded({"$.a[*].b"}, {"a", "b"}));
    EXPECT_FALSE(excluded({"$.a[*].b"}, {"a", "[*]", "[*]", "b"}));
    EXPECT_TRUE(excluded({"$.a[*][*].b"}, {"a", "[*]", "[*]", "b"}));
    EXPECT_TRUE(excluded({"$.a[*].b[*].c"}, {"a", "[*]", "b", "[*]", "c"}));
    EXPECT_TRUE(excluded({"$[*].id"}, {"[*]", "id"}));
    EXPECT_TRUE(excluded({"$.a[*]"}, {"a", "[*]"}));
    EXPECT_FALSE(excluded({"$.a[*]"}, {"a"}));
    EXPECT_TRUE(excluded({"$[*]"}, {"[*]"}));
}

// What ends a name lies between other characters, so names that begin alike are easily mixed up.
TEST(Exclude, PathsWithTheSameBeginningDiffer) {
    const std::vector<std::string_view> entries = {"$.a.x",  "$.a[*].x", "$.a-b.x",    "$.a b.x",
                                                   "$.aB.x", "$.a_.x",   "$.\u00e9.x", "$.az.x",
                                                   "$.a/.x", "$.a0.x",   "$.ab"};
    for (const Place& place : {Place{"a", "x"},
                               {"a", "[*]", "x"},
                               {"a-b", "x"},
                               {"a b", "x"},
                               {"aB", "x"},
                               {"a_", "x"},
                               {"\u00e9", "x"},
                               {"az", "x"},
                               {"a/", "x"},
                               {"a0", "x"},
                               {"ab"}})
        EXPECT_TRUE(excluded(entries, place)) << place.front();
    for (const Place& place : {Place{"a"},
                               {"a", "[*]"},
                               {"a", "y"},
                               {"aB"},
                               {"a1", "x"},
                               {"x"},
                               {"a-", "x"},
                               {"aa", "x"},
                               {"\u00e8", "x"}})
        EXPECT_FALSE(excluded(entries, place)) << place.front();
}

TEST(Exclude, EntriesAddUp) {
    const std::vector<std::string_view> entries = {"$.a.b", "ts", "$.c", "nonce", "$.c"};
    for (const Place& place : {Place{"a", "b"}, {"a", "TS"}, {"c"}, {"Nonce"}})
        EXPECT_TRUE(excluded(entries, place)) << place.front();
    EXPECT_FALSE(excluded(entries, {"a", "d"}));
    EXPECT_FALSE(excluded({}, {"a"}));
    EXPECT_FALSE(excluded({}, {"[*]", "a"}));
}

TEST(Exclude, AcceptsNamesAndPaths) {
    for (const std::string_view entry :
         {"a", "a b", "a$", "a-b", "\"\"", "\"a.b\"", R"("\ud83d\ude00")", "\u20ac", "$.a",
          "$.a.b.c", "$.a[*]", "$.a[*][*].b[*]", "$[*]", "$[*].a", "$.a b", "$.$ref", "$.@type",
          "$.\u20ac"}) {
        EXPECT_TRUE(valid_exclude(entry)) << entry;
    }
}

TEST(Exclude, RefusesInvalidPaths) {
    using namespace std::string_literals;
    const std::string refused[] = {"",
                                   "$",
                                   "$.",
                                   "$..a",
                                   "$.a.",
                                   "$.a..b",
                                   "$.a[",
                                   "$.a[0]",
                                   "$.a[]",
                                   "$.a[**]",
                                   "$.a[ * ]",
                                   "$.a[*",
                                   "$.a[*]b",
                                   "$.a[*].",
                                   "$[",
                                   "$[0]",
                                   "$[*]a",
                                   "$a",
                                   "$ref",
                                   "$$.a",
                                   "$.a]",
                                   "$.*",
                                   "$.a*",
                                   "$.\"a b\"",
                                   "$['a']",
                                   "$.['a']",
                                   "$.[*]",
                                   "a\n",
                                   "\t",
                                   "a\x7f",
                                   "a\0b"s,
                                   "$.a\n",
                                   "$.a\0"s,
                                   "$.\x1f",
                                   "a.b",
                                   "a[*]",
                                   "a[0]",
                                   "*",
                                   "a]",
                                   " a",
                                   "a ",
                                   " ",
                                   "a\"b",
                                   "\"",
                                   "\"a",
                                   "a\"",
                                   "\"a\"b",
                                   "\"a\"b\"",
                                   "\"a\\\"",
                                   R"("\x")",
                                   R"("\u12")",
                                   R"("\u0000")",
                                   R"("\ud83d")",
                                   R"("\ude00")",
                                   R"("\ud83d\u0041")",
                                   R"("\u+123")",
                                   "\"a\n\""};
    for (const std::string& entry : refused) EXPECT_FALSE(valid_exclude(entry)) << entry;
}

// ---- the digest ----

std::string digest(const FingerprintInput& input) {
    unsigned char bytes[kFingerprintBytes];
    EXPECT_TRUE(fingerprint(input, bytes));
    std::string out;
    for (const unsigned char byte : bytes) {
        out += "0123456789abcdef"[byte >> 4];
        out += "0123456789abcdef"[byte & 0xF];
    }
    return out;
}

// Computed with sha256sum, for example
//   printf 'idempotency fingerprint 1\n-\n-\n-\n' | sha256sum
TEST(Fingerprint, KnownDigests) {
    EXPECT_EQ(digest({}), "da184b479f31ea5b80160d29d6a1a1c7e2a99d59c2dc96dbff55278ed531552e");
    // 0:\n0:\n2:""\n
    EXPECT_EQ(digest({"", "", "\"\""}),
              "a3900f5185143bb3c3ca2d063a8c5952a782c65df96fbd123d8e20225b2becc2");
    // 4:POST\n9:/payments\n25:{"amount":100,"to":"\xe2\x82\xac"}\n
    EXPECT_EQ(digest({"POST", "/payments", "{\"amount\":100,\"to\":\"\u20ac\"}"}),
              "a0848e31aaad422feddafaf63d402ab489c6ac0efc9e58427efd2d8389bb254c");
}

TEST(Fingerprint, FieldsDoNotRunIntoEachOther) {
    const FingerprintInput inputs[] = {{"POST", "/a", "1"},
                                       {"POST/", "a", "1"},
                                       {"POST/a", "", "1"},
                                       {"", "POST/a", "1"},
                                       {"POST", "/a", "11"},
                                       {"POST", "/a1", "1"},
                                       {"POST", "/a", std::nullopt},
                                       {"POST", std::nullopt, "1"},
                                       {std::nullopt, "/a", "1"},
                                       {"/a", std::nullopt, "1"},
                                       {std::nullopt, std::nullopt, "1"},
                                       {"-", "-", "1"},
                                       {"", "", "1"},
                                       {"POST\n2:/a", "", "1"},
                                       {"POST", "/a\n1:1", std::nullopt},
                                       {"post", "/a", "1"},
                                       {"POST", "/A", "1"}};
    for (const FingerprintInput& one : inputs) {
        for (const FingerprintInput& other : inputs) {
            EXPECT_EQ(digest(one) == digest(other), &one == &other)
                << &one - inputs << " " << &other - inputs;
        }
    }
}

}  // namespace
}  // namespace idem::core
