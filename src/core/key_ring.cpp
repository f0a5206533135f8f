#include "core/key_ring.hpp"

#include <openssl/evp.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace idem::core {

namespace {

struct MasterKey {
    char id[kLongestKeyId];
    unsigned char id_length;
    Key key;
    KeyCheck check;
    bool has_check;

    std::string_view name() const { return {id, id_length}; }
};

}  // namespace

class KeyRing {
  public:
    MasterKey keys[kMostKeys];
    std::size_t count;
    std::size_t current;  // kMostKeys: none is marked

    // The record whose key was derived last; kMostKeys: none.
    std::size_t derived_from;
    char salt[kSaltBytes];
    Key derived;
};

namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr std::string_view kCurrent = "current";

// ---- memory ----

// A page of its own, so that locking and dump flags concern nothing else. Encryption works without
// the lock, too.
KeyRing* new_ring() {
    void* memory =
        mmap(nullptr, sizeof(KeyRing), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    (void)mlock(memory, sizeof(KeyRing));
#ifdef MADV_DONTDUMP
    (void)madvise(memory, sizeof(KeyRing), MADV_DONTDUMP);
#endif
#ifdef MADV_WIPEONFORK
    (void)madvise(memory, sizeof(KeyRing), MADV_WIPEONFORK);
#endif
    auto* ring = new (memory) KeyRing{};
    ring->current = kMostKeys;
    ring->derived_from = kMostKeys;
    return ring;
}

// ---- lines ----

// Takes the first word off the rest of a line; empty: there is none.
std::string_view next_word(std::string_view* line) {
    line->remove_prefix(std::min(line->find_first_not_of(kBlanks), line->size()));
    const std::string_view word = line->substr(0, line->find_first_of(kBlanks));
    line->remove_prefix(word.size());
    return word;
}

bool is_id(std::string_view word) {
    return word.size() <= kLongestKeyId && std::all_of(word.begin(), word.end(), [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '-';
           });
}

// 32 bytes are 43 digits and one '='. EVP_DecodeBlock skips blanks, which a word does not contain,
// and writes whole groups of three bytes.
bool decode(std::string_view base64, Key& key) {
    constexpr std::size_t kDigits = 44;
    if (base64.size() != kDigits || base64.find('=') != kDigits - 1) return false;
    unsigned char decoded[kDigits / 4 * 3];
    const int length =
        EVP_DecodeBlock(decoded, reinterpret_cast<const unsigned char*>(base64.data()), kDigits);
    std::copy_n(decoded, kKeyBytes, key);
    wipe(decoded, sizeof decoded);
    return length == sizeof decoded;
}

std::size_t place_of(const KeyRing& ring, std::string_view id) {
    std::size_t place = 0;
    while (place < ring.count && ring.keys[place].name() != id) ++place;
    return place;
}

// The fault of the line; nullptr: none.
const char* add_line(KeyRing& ring, std::string_view line) {
    const std::string_view id = next_word(&line);
    if (id.empty() || id.front() == '#') return nullptr;
    if (!is_id(id))
        return "Its id may have at most 63 characters: letters, digits, \".\", \"_\" and \"-\".";
    if (place_of(ring, id) < ring.count) return "An earlier line has the same id.";
    if (ring.count == kMostKeys) return "There are more than 32 keys.";
    MasterKey& key = ring.keys[ring.count];
    if (!decode(next_word(&line), key.key)) return "Its key is not the base64 of 32 bytes.";
    const std::string_view mark = next_word(&line);
    if (mark == kCurrent) {
        if (ring.current < ring.count) return "An earlier line is already marked as current.";
        ring.current = ring.count;
    } else if (!mark.empty()) {
        return "The word after the key is not \"current\".";
    }
    if (!next_word(&line).empty()) return "It has more words than id, key and \"current\".";
    std::copy(id.begin(), id.end(), key.id);
    key.id_length = static_cast<unsigned char>(id.size());
    ++ring.count;
    return nullptr;
}

KeyFault add_lines(KeyRing& ring, std::string_view text) {
    for (std::size_t number = 1; !text.empty(); ++number) {
        const std::string_view line = text.substr(0, text.find('\n'));
        if (const char* detail = add_line(ring, line)) return {detail, number};
        text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
    if (ring.count == 0) return {"It has no key.", 0};
    if (ring.current == kMostKeys) return {"None of its keys is marked as current.", 0};
    return {nullptr, 0};
}

}  // namespace

KeyRing* read_key_ring(std::string_view text, KeyFault* fault) noexcept {
    KeyRing* ring = new_ring();
    *fault = ring == nullptr ? KeyFault{"Memory for it could not be allocated.", 0}
                             : add_lines(*ring, text);
    if (fault->detail == nullptr) return ring;
    wipe_key_ring(ring);
    return nullptr;
}

void wipe_key_ring(KeyRing* ring) noexcept {
    if (ring == nullptr) return;
    wipe(ring, sizeof(KeyRing));
    (void)munmap(ring, sizeof(KeyRing));
}

std::string_view current_key_id(const KeyRing& ring) noexcept {
    return ring.keys[ring.current].name();
}

std::string_view key_id_at(const KeyRing& ring, std::size_t number) noexcept {
    return number < ring.count ? ring.keys[number].name() : std::string_view();
}

std::string_view key_check(KeyRing& ring, std::string_view id) noexcept {
    const std::size_t place = place_of(ring, id);
    if (place == ring.count) return {};
    MasterKey& key = ring.keys[place];
    key.has_check = key.has_check || derive_check(key.key, key.check);
    if (!key.has_check) return {};
    return {reinterpret_cast<const char*>(key.check), kCheckBytes};
}

RecordKey record_key(KeyRing& ring, std::string_view id, std::string_view salt,
                     const Key** key) noexcept {
    const std::size_t place = place_of(ring, id);
    if (place == ring.count) return RecordKey::NoSuchId;
    if (salt.size() != kSaltBytes) return RecordKey::Refused;
    *key = &ring.derived;
    if (ring.derived_from == place && salt == std::string_view(ring.salt, kSaltBytes))
        return RecordKey::Derived;
    ring.derived_from = kMostKeys;
    if (!derive_key(ring.keys[place].key, salt, ring.derived)) return RecordKey::Refused;
    salt.copy(ring.salt, kSaltBytes);
    ring.derived_from = place;
    return RecordKey::Derived;
}

}  // namespace idem::core
