#include "core/canonical.hpp"

#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

namespace idem::core {
namespace {

std::string canonical(std::string_view text) {
    JsonValue value;
    std::string out;
    EXPECT_EQ(parse_json(text, nullptr, value), FingerprintFault::None) << text;
    EXPECT_EQ(append_canonical(value, out), FingerprintFault::None) << text;
    return out;
}

FingerprintFault fault_of(std::string_view text) {
    JsonValue value;
    std::string out;
    EXPECT_EQ(parse_json(text, nullptr, value), FingerprintFault::None) << text;
    return append_canonical(value, out);
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
        {"0e99999999999999999999", "0"},
        {"1.0", "1"},
        {"1.00", "1"},
        {"1e0", "1"},
        {"10e-1", "1"},
        {"0.01E+2", "1"},
        {"1e-000", "1"},
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

TEST(Canonical, ExponentsReachAsFarAs64Bits) {
    EXPECT_EQ(canonical("1e9223372036854775807"), "1e+9223372036854775807");
    EXPECT_EQ(canonical("1e-9223372036854775808"), "1e-9223372036854775808");
    EXPECT_EQ(canonical("0.1e-9223372036854775807"), "1e-9223372036854775808");
    EXPECT_EQ(canonical("10e9223372036854775806"), "1e+9223372036854775807");
    EXPECT_EQ(canonical("1e+00000000000000000000000007"), "10000000");
    for (const std::string_view beyond :
         {"1e9223372036854775808", "10e9223372036854775807", "1e-9223372036854775809",
          "0.1e-9223372036854775808", "[1,{\"a\":1e99999999999999999999}]"}) {
        EXPECT_EQ(fault_of(beyond), FingerprintFault::BadJson) << beyond;
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

// RFC 8785, section 3.2.2; the first number is where we keep what it rounds.
TEST(Canonical, SampleOfRfc8785) {
    EXPECT_EQ(
        canonical(R"({
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    })"),
        R"({"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],)"
        "\"string\":\"\u20ac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}");
}

// RFC 8785, section 3.2.3.
TEST(Canonical, SortingSampleOfRfc8785) {
    EXPECT_EQ(canonical(R"({
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\ud83d\ude00": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis"
    })"),
              "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\","
              "\"\u00f6\":\"Latin Small Letter O With Diaeresis\",\"\u20ac\":\"Euro Sign\","
              "\"\U0001F600\":\"Emoji: Grinning Face\","
              "\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}");
}

TEST(Canonical, EscapesOnlyWhatMustBeEscaped) {
    EXPECT_EQ(canonical(R"("\u0008\u0009\u000a\u000c\u000d\u0022\u005c")"), R"("\b\t\n\f\r\"\\")");
    EXPECT_EQ(canonical(R"("\u0000\u0001\u000B\u000e\u001F")"),
              R"("\u0000\u0001\u000b\u000e\u001f")");
    EXPECT_EQ(canonical(R"("\/\u007f\u2028\u003c\u00E9")"), "\"/\x7f\u2028<\u00e9\"");
    EXPECT_EQ(canonical(R"({"\u0041\n":1})"), R"({"A\n":1})");
}

TEST(Canonical, SortsAtEveryDepthAndKeepsTheOrderOfArrays) {
    EXPECT_EQ(canonical(R"( { "b" : [ 3 , { "z" : 1 , "y" : { } } , [ ] ] , "a" : null } )"),
              R"({"a":null,"b":[3,{"y":{},"z":1},[]]})");
    EXPECT_EQ(canonical(R"({"10":0,"9":0,"":0,"aa":0,"a":0,"A":0})"),
              R"({"":0,"10":0,"9":0,"A":0,"a":0,"aa":0})");
}

TEST(Canonical, CanonicalTextIsItsOwnCanonicalForm) {
    for (const std::string_view text :
         {"null", "\"\"", "[]", "{}", R"([1.5,-2,"\u0000",{"a":{"b":[true,false]}}])"}) {
        EXPECT_EQ(canonical(text), text);
    }
}

}  // namespace
}  // namespace idem::core
