#include "core/fingerprint.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>
#include <vector>

namespace {

// How many allocations succeed before all fail; negative: no limit.
long allocations_left = -1;

}  // namespace

// The test program's own allocator, so that memory can run out at any chosen point. Not inlined:
// g++ would take one half of a pair, seen alone, for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    if (allocations_left == 0) return nullptr;
    if (allocations_left > 0) --allocations_left;
    return std::malloc(size > 0 ? size : 1);
}

[[gnu::noinline]] void* operator new(std::size_t size) {
    if (void* memory = operator new(size, std::nothrow)) return memory;
    throw std::bad_alloc();
}

[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}

namespace idem::core {
namespace {

using Text = std::optional<std::string_view>;

FingerprintInput input_of(Text method, Text path, Text request) {
    FingerprintInput input;
    input.method = method;
    input.path = path;
    input.request = request;
    return input;
}

std::string hex(const FingerprintResult& result) {
    std::string out;
    for (const unsigned char byte : result.digest) {
        out += "0123456789abcdef"[byte >> 4];
        out += "0123456789abcdef"[byte & 0xF];
    }
    return out;
}

std::string digest(Text method, Text path, Text request,
                   const std::vector<std::string_view>& exclude = {}) {
    FingerprintInput input = input_of(method, path, request);
    input.exclude = exclude.data();
    input.exclude_count = exclude.size();
    const FingerprintResult result = fingerprint(input);
    EXPECT_EQ(result.fault, FingerprintFault::None);
    EXPECT_EQ(result.bad_exclude, 0u);
    return hex(result);
}

std::string of_request(std::string_view request,
                       const std::vector<std::string_view>& exclude = {}) {
    return digest(std::nullopt, std::nullopt, request, exclude);
}

FingerprintFault fault_of(std::string_view request, bool (*interrupted)() = nullptr) {
    FingerprintInput input = input_of(std::nullopt, std::nullopt, request);
    input.interrupted = interrupted;
    return fingerprint(input).fault;
}

// Computed with sha256sum, for example
//   printf 'idempotency fingerprint 1\n-\n-\n-\n' | sha256sum
TEST(Fingerprint, KnownDigests) {
    EXPECT_EQ(digest(std::nullopt, std::nullopt, std::nullopt),
              "da184b479f31ea5b80160d29d6a1a1c7e2a99d59c2dc96dbff55278ed531552e");
    // 0:\n0:\n2:""\n
    EXPECT_EQ(digest("", "", "\"\""),
              "a3900f5185143bb3c3ca2d063a8c5952a782c65df96fbd123d8e20225b2becc2");
    // 4:POST\n9:/payments\n25:{"amount":100,"to":"\xe2\x82\xac"}\n
    EXPECT_EQ(digest("POST", "/payments", R"({ "to": "\u20AC", "amount": 1.00e2 })"),
              "a0848e31aaad422feddafaf63d402ab489c6ac0efc9e58427efd2d8389bb254c");
}

TEST(Fingerprint, NotationDoesNotCount) {
    const std::string digest_of_one = of_request(R"({"a":1,"b":{"c":[1,2],"d":"\u00e9"}})");
    EXPECT_EQ(digest_of_one, of_request(R"({"b":{"d":"\u00E9","c":[1,2]},"a":1})"));
    EXPECT_EQ(digest_of_one, of_request("{\"a\":1,\"b\":{\"c\":[1,2],\"d\":\"\u00e9\"}}"));
    EXPECT_EQ(digest_of_one,
              of_request("\n{ \"a\" : 1.0 ,\t\"b\":{\"c\":[1e0,20e-1],\"d\":\"\\u00e9\"}}\r"));
    EXPECT_EQ(digest_of_one, of_request(R"({"a":2,"a":1,"b":{"c":[1,2],"d":"\u00e9"}})"));
}

TEST(Fingerprint, EveryChangeOfContentCounts) {
    const std::string_view requests[] = {R"({"a":1,"b":{"c":[1,2]}})",
                                         R"({"a":2,"b":{"c":[1,2]}})",
                                         R"({"a":1,"b":{"c":[2,1]}})",
                                         R"({"a":1,"b":{"c":[1,2,2]}})",
                                         R"({"a":1,"b":{"c":[1]}})",
                                         R"({"a":"1","b":{"c":[1,2]}})",
                                         R"({"a":1,"B":{"c":[1,2]}})",
                                         R"({"a":1,"b":{"c":{"1":2}}})",
                                         R"({"a":1,"b":{}})",
                                         R"({"a":1,"b":null})",
                                         R"({"a":1})",
                                         "{}",
                                         "[]",
                                         "null",
                                         "false",
                                         "0",
                                         "\"\"",
                                         "\"null\"",
                                         "9007199254740992",
                                         "9007199254740993",
                                         "0.1",
                                         "0.10000000000000001",
                                         "\"a\"",
                                         "\"A\"",
                                         "\"a \"",
                                         "\"e\u0301\"",
                                         "\"\u00e9\""};
    for (const std::string_view one : requests) {
        for (const std::string_view other : requests) {
            EXPECT_EQ(of_request(one) == of_request(other), one == other) << one << " " << other;
        }
    }
}

TEST(Fingerprint, FieldsDoNotRunIntoEachOther) {
    const FingerprintInput inputs[] = {input_of("POST", "/a", "1"),
                                       input_of("POST/", "a", "1"),
                                       input_of("POST/a", "", "1"),
                                       input_of("", "POST/a", "1"),
                                       input_of("POST", "/a", "11"),
                                       input_of("POST", "/a1", "1"),
                                       input_of("POST", "/a", std::nullopt),
                                       input_of("POST", std::nullopt, "1"),
                                       input_of(std::nullopt, "/a", "1"),
                                       input_of("/a", std::nullopt, "1"),
                                       input_of(std::nullopt, std::nullopt, "1"),
                                       input_of("-", "-", "1"),
                                       input_of("", "", "1"),
                                       input_of("POST\n2:/a", "", "1"),
                                       input_of("POST", "/a\n1:1", std::nullopt),
                                       input_of("post", "/a", "1"),
                                       input_of("POST", "/A", "1")};
    for (const FingerprintInput& one : inputs) {
        for (const FingerprintInput& other : inputs) {
            EXPECT_EQ(hex(fingerprint(one)) == hex(fingerprint(other)), &one == &other)
                << &one - inputs << " " << &other - inputs;
        }
    }
}

TEST(Fingerprint, ExcludedFieldsDoNotCount) {
    const std::vector<std::string_view> exclude = {"trace_id", "$.meta.sent_at"};
    const std::string known = of_request(R"({"amount":1,"meta":{"shop":7}})", exclude);
    EXPECT_EQ(known,
              of_request(R"({"amount":1,"meta":{"shop":7,"sent_at":1},"Trace_ID":"a"})", exclude));
    EXPECT_EQ(known,
              of_request(R"({"amount":1,"meta":{"shop":7,"sent_at":2,"trace_id":[]}})", exclude));
    EXPECT_EQ(known, of_request(R"({"amount":1,"meta":{"shop":7}})"));
    EXPECT_NE(known, of_request(R"({"amount":2,"meta":{"shop":7}})", exclude));
    EXPECT_NE(known, of_request(R"({"amount":1,"meta":{"shop":7},"sent_at":1})", exclude));
}

TEST(Fingerprint, NamesTheBadExcludeEntry) {
    const std::string_view exclude[] = {"a", "$.b", "$.c[0]", ""};
    for (const Text request : {Text("{}"), Text("no JSON"), Text()}) {
        FingerprintInput input = input_of("POST", "/", request);
        input.exclude = exclude;
        input.exclude_count = std::size(exclude);
        const FingerprintResult result = fingerprint(input);
        EXPECT_EQ(result.fault, FingerprintFault::BadExclude);
        EXPECT_EQ(result.bad_exclude, 2u);
    }
}

TEST(Fingerprint, ReportsWhatIsWrongWithARequest) {
    EXPECT_EQ(fault_of(""), FingerprintFault::BadJson);
    EXPECT_EQ(fault_of("{\"a\":\xff}"), FingerprintFault::BadJson);
    EXPECT_EQ(fault_of("1e99999999999999999999"), FingerprintFault::BadJson);
    EXPECT_EQ(fault_of(std::string(kMaxJsonDepth + 1, '[')), FingerprintFault::TooDeep);
    const std::string deep = std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']');
    EXPECT_EQ(fault_of(deep), FingerprintFault::None);
}

TEST(Fingerprint, HonoursAnInterrupt) {
    std::string large = "[0";
    for (int i = 0; i < 20000; ++i) large += ",0";
    large += "]";
    EXPECT_EQ(fault_of(large, [] { return true; }), FingerprintFault::Interrupted);
    EXPECT_EQ(fault_of(large, [] { return false; }), FingerprintFault::None);
}

TEST(Fingerprint, SurvivesRunningOutOfMemoryAtEveryPoint) {
    const std::string_view request =
        R"({"b":[1,"a string too long to be kept inside of its object",{"c":1}],)"
        R"("a name too long to be kept inside of its object":1234567890123456789012345678901234567890})";
    const std::string whole = of_request(request);
    int failures = 0;
    for (;; ++failures) {
        allocations_left = failures;
        const FingerprintResult result = fingerprint(input_of("POST", "/", request));
        allocations_left = -1;
        if (result.fault == FingerprintFault::None) break;
        ASSERT_EQ(result.fault, FingerprintFault::OutOfMemory) << "after " << failures;
    }
    EXPECT_GT(failures, 10);
    EXPECT_EQ(of_request(request), whole);
}

}  // namespace
}  // namespace idem::core
