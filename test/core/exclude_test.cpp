// The course of a whole request is in test/regress/sql/11_fingerprint.sql.
#include "core/exclude.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace idem::core {
namespace {

// A place in a request: names of members, and "[*]" for each element of an array.
using Place = std::vector<std::string_view>;

// Whether the entries leave that place out, or one on the way to it.
bool excluded(std::vector<std::string_view> entries, const Place& place) {
    for (const std::string_view entry : entries) EXPECT_TRUE(valid_exclude(entry)) << entry;
    const Excludes excludes = sort_excludes(entries.data(), entries.size());
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

TEST(Exclude, APlainNameIsTakenLiterally) {
    EXPECT_TRUE(excluded({"a.b"}, {"a.b"}));
    EXPECT_FALSE(excluded({"a.b"}, {"a", "b"}));
    EXPECT_TRUE(excluded({"a[*]"}, {"a[*]"}));
    EXPECT_FALSE(excluded({"a[*]"}, {"a", "[*]"}));
}

TEST(Exclude, APathRemovesOnePlace) {
    EXPECT_TRUE(excluded({"$.a.c.b"}, {"a", "c", "b"}));
    EXPECT_TRUE(excluded({"$.a"}, {"a", "c", "b"}));  // with what is in it
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
TEST(Exclude, PathsThatBeginAlikeAreToldApart) {
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
