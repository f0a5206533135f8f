#include "core/fingerprint.hpp"

#include <gtest/gtest.h>

#include <string>

namespace idem::core {
namespace {

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
