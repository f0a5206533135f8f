#include "core/siphash.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace idem::core {
namespace {

// 00 01 02 ... 0f, as in the paper and in the reference implementation's vectors.
SipKey key_of_paper() {
    std::array<unsigned char, kSipKeyBytes> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i);
    return sip_key(bytes);
}

// 00 01 02 ..., so many.
std::string counting(std::size_t count) {
    std::string bytes;
    for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i));
    return bytes;
}

// Appendix A has 15 bytes; the others are vectors_sip64 of the reference implementation, whose
// bytes come the least significant first.
TEST(SipHash, IsTheOneOfThePaper) {
    const SipKey key = key_of_paper();
    EXPECT_EQ(sip_hash(key, counting(15)), 0xa129ca6149be45e5);
    EXPECT_EQ(sip_hash(key, counting(0)), 0x726fdb47dd0e0e31);
    EXPECT_EQ(sip_hash(key, counting(1)), 0x74f839c593dc67fd);
    EXPECT_EQ(sip_hash(key, counting(2)), 0x0d6c8009d9a94f5a);
    EXPECT_EQ(sip_hash(key, counting(7)), 0xab0200f58b01d137);
    EXPECT_EQ(sip_hash(key, counting(8)), 0x93f5f5799a932462);
    EXPECT_EQ(sip_hash(key, counting(63)), 0x958a324ceb064572);
}

// Independent of how the bytes are split: the lengths of the first and the second text stand before
// them.
TEST(SipHash, OfTextsIsThatOfTheirLengthsAndBytes) {
    const SipKey key = key_of_paper();
    for (std::size_t first = 0; first < 20; ++first) {
        const std::string a = counting(first);
        const std::string b = counting(first % 5);
        const std::string c = counting(19 - first);
        const std::string lengths{static_cast<char>(a.size()), 0, 0, 0,
                                  static_cast<char>(b.size()), 0, 0, 0};
        const std::string whole = lengths + a + b + c;
        EXPECT_EQ(sip_hash(key, a, b, c), sip_hash(key, whole)) << first;
    }
}

TEST(SipHash, TellsTextsApart) {
    const SipKey key = key_of_paper();
    std::set<std::uint64_t> hashes;
    hashes.insert(sip_hash(key, "a", "b", ""));
    hashes.insert(sip_hash(key, "ab", "", ""));
    hashes.insert(sip_hash(key, "", "ab", ""));
    hashes.insert(sip_hash(key, "", "", "ab"));
    hashes.insert(sip_hash(key, "a", "", "b"));
    EXPECT_EQ(hashes.size(), 5U);
}

TEST(SipHash, DependsOnEachBitOfTheKey) {
    std::set<std::uint64_t> hashes;
    for (int bit = 0; bit < 128; ++bit) {
        std::array<unsigned char, kSipKeyBytes> bytes{};
        bytes[static_cast<std::size_t>(bit) / 8] = static_cast<unsigned char>(1 << (bit % 8));
        hashes.insert(sip_hash(sip_key(bytes), "scope", "principal", "key"));
    }
    EXPECT_EQ(hashes.size(), 128U);
}

}  // namespace
}  // namespace idem::core
