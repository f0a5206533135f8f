#include "core/seal.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace idem::core {
namespace {

std::string from_hex(const std::string& hex) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return bytes;
}

const unsigned char* data(const std::string& bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
}

unsigned char* data(std::string& bytes) {
    return reinterpret_cast<unsigned char*>(bytes.data());
}

// A key or nonce of as many bytes as it takes.
template <std::size_t size>
struct Bytes {
    unsigned char bytes[size];

    explicit Bytes(const std::string& from) {
        EXPECT_EQ(from.size(), size);
        std::copy_n(data(from), size, bytes);
    }
};

std::string derived(const std::string& secret, const std::string& salt, const std::string& info,
                    std::size_t length) {
    std::string key(length, '?');
    EXPECT_TRUE(hkdf(secret, salt, info, data(key), length));
    return key;
}

// RFC 5869, appendix A: the tests with SHA-256.
TEST(Hkdf, KnownAnswers) {
    const std::string secret(22, '\x0b');
    EXPECT_EQ(derived(secret, from_hex("000102030405060708090a0b0c"),
                      from_hex("f0f1f2f3f4f5f6f7f8f9"), 42),
              from_hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
                       "34007208d5b887185865"));
    std::string counted;
    for (int byte = 0; byte < 256; ++byte) counted += static_cast<char>(byte);
    EXPECT_EQ(
        derived(counted.substr(0, 0x50), counted.substr(0x60, 0x50), counted.substr(0xb0), 82),
        from_hex("b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
                 "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
                 "cc30c58179ec3e87c14c01d5c1f3434f1d87"));
    EXPECT_EQ(derived(secret, "", "", 42),
              from_hex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
                       "9d201395faa4b61a96c8"));
}

std::string encrypted(const std::string& key, const std::string& nonce, const std::string& plain,
                      const std::string& additional) {
    std::string out(plain.size() + kTagBytes, '?');
    EXPECT_TRUE(encrypt(Bytes<kKeyBytes>(from_hex(key)).bytes,
                        Bytes<kNonceBytes>(from_hex(nonce)).bytes, additional, plain, data(out)));
    return out;
}

// McGrew and Viega, The Galois/Counter Mode of Operation, appendix B: test cases 13 to 16.
TEST(Gcm, KnownAnswers) {
    const std::string zero_key(64, '0');
    const std::string zero_nonce(24, '0');
    EXPECT_EQ(encrypted(zero_key, zero_nonce, "", ""),
              from_hex("530f8afbc74536b9a963b4f1c4cb738b"));
    EXPECT_EQ(encrypted(zero_key, zero_nonce, std::string(16, '\0'), ""),
              from_hex("cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"));
    const std::string key = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
    const std::string nonce = "cafebabefacedbaddecaf888";
    const std::string plain = from_hex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255");
    const std::string cipher = from_hex(
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
        "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad");
    EXPECT_EQ(encrypted(key, nonce, plain, ""),
              cipher + from_hex("b094dac5d93471bdec1a502270e3cc6c"));
    EXPECT_EQ(encrypted(key, nonce, plain.substr(0, 60),
                        from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2")),
              cipher.substr(0, 60) + from_hex("76fc6ece0f4e1768cddf8853bb2d551b"));
}

// ---- the format: values that another implementation has sealed ----

struct Vector {
    std::string name, master_key, key_id, salt, column, scope, principal, key, record_key, plain,
        sealed;

    SealPlace place() const { return {key_id, column, scope, principal, key}; }
};

std::string field(const std::string& object, const char* name) {
    std::smatch match;
    const std::regex pattern('"' + std::string(name) + "\": \"([^\"]*)\"");
    EXPECT_TRUE(std::regex_search(object, match, pattern)) << name;
    return match[1];
}

std::vector<Vector> vectors() {
    std::ifstream file(IDEM_SOURCE_DIR "/test/core/seal_vectors.json");
    std::stringstream text;
    text << file.rdbuf();
    const std::string json = text.str().substr(text.str().find("\"vectors\""));
    std::vector<Vector> result;
    for (std::size_t at = json.find('{'); at != std::string::npos; at = json.find('{', at + 1)) {
        const std::string object = json.substr(at, json.find('}', at) - at);
        const auto bytes = [&object](const char* name) { return from_hex(field(object, name)); };
        result.push_back({field(object, "name"), bytes("master_key"), field(object, "key_id"),
                          bytes("salt"), field(object, "column"), bytes("scope"),
                          bytes("principal"), bytes("key"), bytes("record_key"), bytes("plain"),
                          bytes("sealed")});
    }
    EXPECT_GE(result.size(), 6u);
    return result;
}

std::string record_key_of(const Vector& v) {
    Key key;
    EXPECT_TRUE(derive_key(Bytes<kKeyBytes>(v.master_key).bytes, v.salt, key));
    return {reinterpret_cast<const char*>(key), kKeyBytes};
}

TEST(Seal, KnownAnswers) {
    for (const Vector& v : vectors()) {
        SCOPED_TRACE(v.name);
        EXPECT_EQ(record_key_of(v), v.record_key);
        std::string sealed(v.plain.size() + kSealOverhead, '?');
        EXPECT_TRUE(seal_with_nonce(Bytes<kKeyBytes>(v.record_key).bytes, v.place(),
                                    Bytes<kNonceBytes>(v.sealed.substr(1, kNonceBytes)).bytes,
                                    v.plain, data(sealed)));
        EXPECT_EQ(sealed, v.sealed);
    }
}

struct Attempt {
    Opened opened;
    std::string plain;
};

Attempt opened(const Vector& v, const SealPlace& place, const std::string& sealed) {
    std::string plain(sealed.size() < kSealOverhead ? 0 : sealed.size() - kSealOverhead, '?');
    const Opened result = open(Bytes<kKeyBytes>(v.record_key).bytes, place, sealed, data(plain));
    return {result, plain};
}

TEST(Open, KnownAnswers) {
    for (const Vector& v : vectors()) {
        SCOPED_TRACE(v.name);
        const Attempt attempt = opened(v, v.place(), v.sealed);
        EXPECT_EQ(attempt.opened, Opened::Yes);
        EXPECT_EQ(attempt.plain, v.plain);
    }
}

// After any change, and cut anywhere: nothing opens, and no plain text is left to read.
TEST(Open, RefusesChangedValues) {
    const Vector v = vectors().front();
    for (std::size_t at = 0; at < v.sealed.size(); ++at) {
        std::string changed = v.sealed;
        changed[at] = static_cast<char>(changed[at] ^ 1);
        const Attempt attempt = opened(v, v.place(), changed);
        EXPECT_EQ(attempt.opened, at == 0 ? Opened::Unknown : Opened::Not) << at;
        EXPECT_EQ(attempt.plain, std::string(v.plain.size(), at == 0 ? '?' : '\0')) << at;
        EXPECT_EQ(opened(v, v.place(), v.sealed.substr(0, at)).opened, Opened::Not) << at;
    }
    EXPECT_EQ(opened(v, v.place(), v.sealed + '\0').opened, Opened::Not);
}

TEST(Open, RefusesAnotherKey) {
    Vector v = vectors().front();
    v.record_key[31] = static_cast<char>(v.record_key[31] ^ 1);
    EXPECT_EQ(opened(v, v.place(), v.sealed).opened, Opened::Not);
}

// Bytes that move from one name to the next, too.
TEST(Open, RefusesAnotherPlace) {
    const Vector v = vectors().front();
    for (std::string_view SealPlace::*member :
         {&SealPlace::key_id, &SealPlace::column, &SealPlace::scope, &SealPlace::principal,
          &SealPlace::key}) {
        for (const std::string_view other : {std::string_view(), std::string_view("another")}) {
            SealPlace place = v.place();
            place.*member = other;
            EXPECT_EQ(opened(v, place, v.sealed).opened, Opened::Not);
        }
    }
    SealPlace moved = v.place();
    const std::string principal = v.principal + v.key.substr(0, 1);
    const std::string key = v.key.substr(1);
    moved.principal = principal;
    moved.key = key;
    EXPECT_EQ(opened(v, moved, v.sealed).opened, Opened::Not);
}

TEST(Seal, TakesANonceEachTime) {
    const Vector v = vectors().front();
    std::set<std::string> nonces;
    for (int i = 0; i < 100; ++i) {
        std::string sealed(v.plain.size() + kSealOverhead, '?');
        ASSERT_TRUE(seal(Bytes<kKeyBytes>(v.record_key).bytes, v.place(), v.plain, data(sealed)));
        EXPECT_EQ(opened(v, v.place(), sealed).plain, v.plain);
        nonces.insert(sealed.substr(1, kNonceBytes));
    }
    EXPECT_EQ(nonces.size(), 100u);
}

TEST(SameSecret, ComparesLengthAndBytes) {
    EXPECT_TRUE(same_secret("", ""));
    EXPECT_TRUE(same_secret("abc", "abc"));
    EXPECT_FALSE(same_secret("abc", "abd"));
    EXPECT_FALSE(same_secret("abc", "ab"));
    EXPECT_FALSE(same_secret("", "a"));
}

TEST(Wipe, LeavesNothing) {
    std::string secret = "secret";
    wipe(secret.data(), secret.size());
    EXPECT_EQ(secret, std::string(6, '\0'));
}

}  // namespace
}  // namespace idem::core
