#include "core/key_ring.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace idem::core {
namespace {

// 32 bytes, all of them 0, or 0 to 31.
const std::string kZero = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
const std::string kCounted = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const std::string kSalt(kSaltBytes, 's');

class Ring {
  public:
    explicit Ring(const std::string& text) : ring_(read_key_ring(text, &fault_)) {}
    ~Ring() { wipe_key_ring(ring_); }
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;

    bool is_good() const { return ring_ != nullptr; }
    KeyRing& operator*() const { return *ring_; }
    // "2: Its ..." or ""
    std::string fault() const {
        if (fault_.detail == nullptr) return "";
        return std::to_string(fault_.line) + ": " + fault_.detail;
    }

  private:
    KeyFault fault_{};
    KeyRing* ring_;
};

std::string key_of(const Ring& ring, std::string_view id, std::string_view salt = kSalt) {
    const Key* key = nullptr;
    EXPECT_EQ(record_key(*ring, id, salt, &key), RecordKey::Derived);
    return {reinterpret_cast<const char*>(*key), kKeyBytes};
}

std::string derived(const std::string& master, std::string_view salt = kSalt) {
    Key from;
    Key key;
    std::copy(master.begin(), master.end(), from);
    EXPECT_TRUE(derive_key(from, salt, key));
    return {reinterpret_cast<const char*>(key), kKeyBytes};
}

TEST(KeyRing, IsReadFromLines) {
    const Ring ring("# keys\n\n  old\t" + kZero + "\r\nnew-1_2.3 " + kCounted + "   current\n#end");
    ASSERT_TRUE(ring.is_good()) << ring.fault();
    EXPECT_EQ(current_key_id(*ring), "new-1_2.3");
    EXPECT_EQ(key_id_at(*ring, 0), "old");
    EXPECT_EQ(key_id_at(*ring, 1), "new-1_2.3");
    EXPECT_EQ(key_id_at(*ring, 2), "");
    std::string counted;
    for (char byte = 0; byte < 32; ++byte) counted += byte;
    EXPECT_EQ(key_of(ring, "old"), derived(std::string(kKeyBytes, '\0')));
    EXPECT_EQ(key_of(ring, "new-1_2.3"), derived(counted));
}

// The last derived key is cached, and must not be confused with another one.
TEST(KeyRing, DerivesAKeyForEachSalt) {
    const Ring ring("a " + kZero + " current\nb " + kCounted);
    const std::string other(kSaltBytes, 'o');
    const std::string first = key_of(ring, "a");
    EXPECT_EQ(key_of(ring, "a"), first);
    EXPECT_EQ(key_of(ring, "a", other), derived(std::string(kKeyBytes, '\0'), other));
    EXPECT_NE(key_of(ring, "b", other), key_of(ring, "a", other));
    EXPECT_EQ(key_of(ring, "a"), first);
}

// The expected bytes come from another implementation of HKDF.
TEST(KeyRing, HasCheckValues) {
    const Ring ring("a " + kZero + " current\nb " + kCounted + "\nc " + kZero);
    const unsigned char expected[] = {0x42, 0xb9, 0x27, 0x2f, 0xe9, 0xa7, 0xe9, 0x1e,
                                      0xf1, 0x87, 0xa7, 0x72, 0x08, 0xe7, 0x2c, 0x58};
    const std::string_view check = key_check(*ring, "a");
    EXPECT_EQ(check, std::string_view(reinterpret_cast<const char*>(expected), kCheckBytes));
    EXPECT_EQ(key_check(*ring, "c"), check);
    EXPECT_NE(key_check(*ring, "b"), check);
    EXPECT_EQ(key_check(*ring, "d"), "");
}

TEST(KeyRing, KnowsNoOtherIdAndNoOtherSalt) {
    const Ring ring("a " + kZero + " current");
    const Key* key = nullptr;
    EXPECT_EQ(record_key(*ring, "b", kSalt, &key), RecordKey::NoSuchId);
    EXPECT_EQ(record_key(*ring, "", kSalt, &key), RecordKey::NoSuchId);
    EXPECT_EQ(record_key(*ring, "a", kSalt.substr(1), &key), RecordKey::Refused);
    EXPECT_EQ(record_key(*ring, "a", "", &key), RecordKey::Refused);
}

TEST(KeyRing, RefusesInvalidFiles) {
    const std::string good = "a " + kZero + " current\n";
    EXPECT_EQ(Ring("").fault(), "0: It has no key.");
    EXPECT_EQ(Ring("# nothing").fault(), "0: It has no key.");
    EXPECT_EQ(Ring("a " + kZero).fault(), "0: None of its keys is marked as current.");
    EXPECT_EQ(Ring(good + "a " + kCounted).fault(), "2: An earlier line has the same id.");
    EXPECT_EQ(Ring(good + "\nb " + kCounted + " current").fault(),
              "3: An earlier line is already marked as current.");
    EXPECT_EQ(Ring("a " + kZero + " Current").fault(),
              "1: The word after the key is not \"current\".");
    EXPECT_EQ(Ring("a " + kZero + " current too").fault(),
              "1: It has more words than id, key and \"current\".");
    const char* bad_key = "1: Its key is not the base64 of 32 bytes.";
    EXPECT_EQ(Ring("a").fault(), bad_key);
    EXPECT_EQ(Ring("a " + kZero.substr(1)).fault(), bad_key);
    EXPECT_EQ(Ring("a A" + kZero).fault(), bad_key);
    EXPECT_EQ(Ring("a " + kZero.substr(0, 42) + "==").fault(), bad_key);
    EXPECT_EQ(Ring("a " + kZero.substr(0, 43) + "A").fault(), bad_key);
    EXPECT_EQ(Ring("a *" + kZero.substr(1)).fault(), bad_key);
    const char* bad_id =
        "1: Its id may have at most 63 characters: letters, digits, \".\", \"_\" and \"-\".";
    EXPECT_EQ(Ring("a:b " + kZero).fault(), bad_id);
    EXPECT_EQ(Ring("\xc3\xa9 " + kZero).fault(), bad_id);
    EXPECT_EQ(Ring(std::string(64, 'i') + " " + kZero).fault(), bad_id);
    EXPECT_TRUE(Ring(std::string(63, 'i') + " " + kZero + " current").is_good());
}

// The kernel's description of the mapping at this address: the line that begins with VmFlags.
std::string flags_of(const void* address) {
    std::ifstream maps("/proc/self/smaps");
    const auto wanted = reinterpret_cast<std::uintptr_t>(address);
    bool found = false;
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        char dash = 0;
        std::istringstream range(line);
        if (range >> std::hex >> begin >> dash >> end && dash == '-')
            found = begin <= wanted && wanted < end;
        if (found && line.rfind("VmFlags:", 0) == 0) return line + ' ';
    }
    return "";
}

// "dd": no part of a core dump; "wf": wiped on fork. Locking depends on the system.
TEST(KeyRing, LiesInAPageOfItsOwn) {
    const Ring ring("a " + kZero + " current");
    const int elsewhere = 0;
    const std::string flags = flags_of(&*ring);
    EXPECT_NE(flags.find(" dd "), std::string::npos) << flags;
    EXPECT_NE(flags.find(" wf "), std::string::npos) << flags;
    EXPECT_EQ(flags_of(&elsewhere).find(" dd "), std::string::npos);
}

TEST(KeyRing, HasRoomForSomeKeys) {
    std::string text = "k0 " + kZero + " current\n";
    for (std::size_t i = 1; i < kMostKeys; ++i)
        text += "k" + std::to_string(i) + " " + kZero + "\n";
    EXPECT_TRUE(Ring(text).is_good());
    EXPECT_EQ(Ring(text + "more " + kZero).fault(), "33: There are more than 32 keys.");
}

}  // namespace
}  // namespace idem::core
