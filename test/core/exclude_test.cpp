#include "core/exclude.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/canonical.hpp"

namespace idem::core {
namespace {

using Entries = std::vector<std::string_view>;

// The canonical form of `text` without what the entries name.
std::string without(const Entries& entries, std::string_view text) {
    for (const std::string_view entry : entries) EXPECT_TRUE(valid_exclude(entry)) << entry;
    JsonValue value;
    EXPECT_EQ(parse_json(text, nullptr, value), FingerprintFault::None) << text;
    remove_excluded(value, entries.data(), entries.size());
    std::string out;
    EXPECT_EQ(append_canonical(value, out), FingerprintFault::None) << text;
    return out;
}

TEST(Exclude, APlainNameGoesAtEveryDepth) {
    EXPECT_EQ(without({"ts"}, R"({"ts":1,"a":{"ts":{"b":1},"c":[{"ts":[]},[{"ts":0,"d":2}]]}})"),
              R"({"a":{"c":[{},[{"d":2}]]}})");
    EXPECT_EQ(without({"ts"}, R"([{"ts":1},{"tss":1,"t":2}])"), R"([{},{"t":2,"tss":1}])");
}

TEST(Exclude, APlainNameIgnoresAsciiLetterCaseOnly) {
    EXPECT_EQ(without({"Trace_Id"}, R"({"trace_id":1,"TRACE_ID":2,"traceId":3})"),
              R"({"traceId":3})");
    EXPECT_EQ(without({"\u00e9t\u00e9"}, "{\"\u00e9T\u00e9\":1,\"\u00c9t\u00e9\":2}"),
              "{\"\u00c9t\u00e9\":2}");
    EXPECT_EQ(without({"a@z"}, R"({"A`Z":1,"A@Z":2})"), R"({"A`Z":1})");  // one bit, but no letter
}

TEST(Exclude, APlainNameIsTakenLiterally) {
    EXPECT_EQ(without({"a.b"}, R"({"a":{"b":1},"a.b":2})"), R"({"a":{"b":1}})");
    EXPECT_EQ(without({"a[*]"}, R"({"a":[1],"a[*]":2})"), R"({"a":[1]})");
    EXPECT_EQ(without({"x"}, R"(["x",{"y":"x"}])"), R"(["x",{"y":"x"}])");  // names, not values
}

TEST(Exclude, APathRemovesOnePlace) {
    const std::string_view request = R"({"a":{"b":1,"c":{"b":2}},"b":3})";
    EXPECT_EQ(without({"$.b"}, request), R"({"a":{"b":1,"c":{"b":2}}})");
    EXPECT_EQ(without({"$.a.b"}, request), R"({"a":{"c":{"b":2}},"b":3})");
    EXPECT_EQ(without({"$.a.c.b"}, request), R"({"a":{"b":1,"c":{}},"b":3})");
    EXPECT_EQ(without({"$.a"}, request), R"({"b":3})");
}

TEST(Exclude, APathMindsLetterCase) {
    EXPECT_EQ(without({"$.a.B"}, R"({"a":{"b":1,"B":2},"A":{"B":3}})"),
              R"({"A":{"B":3},"a":{"b":1}})");
}

TEST(Exclude, AStarMatchesEachElement) {
    EXPECT_EQ(without({"$.a[*].b"}, R"({"a":[{"b":1,"c":2},{"b":3},4,[{"b":5}]]})"),
              R"({"a":[{"c":2},{},4,[{"b":5}]]})");
    EXPECT_EQ(without({"$.a[*][*].b"}, R"({"a":[[{"b":1}],{"b":2}]})"), R"({"a":[[{}],{"b":2}]})");
    EXPECT_EQ(without({"$.a[*].b[*].c"}, R"({"a":[{"b":[{"c":1,"d":2}]}]})"),
              R"({"a":[{"b":[{"d":2}]}]})");
    EXPECT_EQ(without({"$[*].id"}, R"([{"id":1,"v":2},{"id":3}])"), R"([{"v":2},{}])");
}

TEST(Exclude, AStarAtTheEndEmptiesTheArray) {
    EXPECT_EQ(without({"$.a[*]"}, R"({"a":[1,2],"b":[3]})"), R"({"a":[],"b":[3]})");
    EXPECT_EQ(without({"$.a[*][*]"}, R"({"a":[[1],[2],3]})"), R"({"a":[[],[],3]})");
    EXPECT_EQ(without({"$[*]"}, "[1,[2]]"), "[]");
}

TEST(Exclude, WhatIsNotThereIsNoError) {
    const Entries entries = {"x", "$.x", "$.a.x.y", "$.a[*].b", "$.c.b", "$.c[*].x", "$[*].a"};
    const std::string_view request = R"({"a":{"b":1},"c":[{"b":1}],"d":null})";
    EXPECT_EQ(without(entries, request), request);
    for (const std::string_view scalar : {"1", "\"x\"", "null", "[]", "{}"}) {
        EXPECT_EQ(without(entries, scalar), scalar);
    }
}

TEST(Exclude, EntriesAddUp) {
    EXPECT_EQ(
        without({"$.a.b", "ts", "$.c", "nonce"}, R"({"a":{"b":1,"TS":2,"d":3},"c":4,"Nonce":5})"),
        R"({"a":{"d":3}})");
    EXPECT_EQ(without({"$.a", "$.a", "a"}, R"({"a":1,"b":2})"), R"({"b":2})");
    EXPECT_EQ(without({}, R"({"a":1})"), R"({"a":1})");
}

TEST(Exclude, AcceptsNamesAndPaths) {
    for (const std::string_view entry :
         {"a", " ", "a b", "a$", "a.b", "\u20ac", "$.a", "$.a.b.c", "$.a[*]", "$.a[*][*].b[*]",
          "$[*]", "$[*].a", "$.a b", "$.$ref", "$.@type", "$.\u20ac"}) {
        EXPECT_TRUE(valid_exclude(entry)) << entry;
    }
}

TEST(Exclude, RefusesWhatCannotBeRead) {
    using namespace std::string_literals;
    const std::string refused[] = {
        "",       "$",     "$.",        "$..a",     "$.a.",    "$.a..b",  "$.a[",
        "$.a[0]", "$.a[]", "$.a[**]",   "$.a[ * ]", "$.a[*",   "$.a[*]b", "$.a[*].",
        "$[",     "$[0]",  "$[*]a",     "$a",       "$ref",    "$$.a",    "$.a]",
        "$.*",    "$.a*",  "$.\"a b\"", "$['a']",   "$.['a']", "$.[*]",   "a\n",
        "\t",     "a\x7f", "a\0b"s,     "$.a\n",    "$.a\0"s,  "$.\x1f"};
    for (const std::string& entry : refused) EXPECT_FALSE(valid_exclude(entry)) << entry;
}

}  // namespace
}  // namespace idem::core
