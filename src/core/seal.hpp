// Sealing: AES-256-GCM with a key per record. Without a master key, the values of a row cannot be
// read, nor passed off as another row's. docs/encryption.md has the format byte by byte, and
// test/core/seal_vectors.json has examples.
#pragma once

#include <cstddef>
#include <string_view>

namespace idem::core {

inline constexpr std::size_t kKeyBytes = 32;    // of a master key, and of a record's
inline constexpr std::size_t kSaltBytes = 16;   // of a record, from which its key is derived
inline constexpr std::size_t kNonceBytes = 12;  // of a sealing
inline constexpr std::size_t kTagBytes = 16;
inline constexpr std::size_t kCheckBytes = 16;  // of a check value

// The extra bytes of a sealed value: version, nonce, tag.
inline constexpr std::size_t kSealOverhead = 1 + kNonceBytes + kTagBytes;

using Key = unsigned char[kKeyBytes];
using Salt = unsigned char[kSaltBytes];
using Nonce = unsigned char[kNonceBytes];
using KeyCheck = unsigned char[kCheckBytes];

// The place of a value, in UTF-8. It opens nowhere else.
struct SealPlace {
    std::string_view key_id;  // of the master key
    std::string_view column;
    std::string_view scope;
    std::string_view principal;
    std::string_view key;
};

// ---- the two algorithms, for tests against published vectors ----

// HKDF with SHA-256 (RFC 5869): fills `key`. False if OpenSSL refused.
bool hkdf(std::string_view secret, std::string_view salt, std::string_view info, unsigned char* key,
          std::size_t length) noexcept;

// AES-256-GCM (NIST SP 800-38D): writes as many bytes as `plain` has, and the tag. False if OpenSSL
// refused. A nonce must never repeat with a key.
bool encrypt(const Key& key, const Nonce& nonce, std::string_view additional,
             std::string_view plain, unsigned char* out) noexcept;

// ---- sealing ----

// Random bytes for keys, salts and nonces. False if OpenSSL has none.
bool random_bytes(unsigned char* out, std::size_t count) noexcept;

// The key of a record: HKDF-SHA256 of the master key with the record's salt. False if OpenSSL
// refused.
bool derive_key(const Key& master, std::string_view salt, Key& key) noexcept;

// The check value of a master key: HKDF-SHA256 without salt, under an info of its own. It tells
// keys apart and reveals nothing of them. False if OpenSSL refused.
bool derive_check(const Key& master, KeyCheck& check) noexcept;

// Writes plain.size() + kSealOverhead bytes. The first takes a random nonce; the second is for test
// vectors. False if OpenSSL refused.
bool seal(const Key& key, const SealPlace& place, std::string_view plain,
          unsigned char* out) noexcept;
bool seal_with_nonce(const Key& key, const SealPlace& place, const Nonce& nonce,
                     std::string_view plain, unsigned char* out) noexcept;

enum class Opened {
    Yes,
    Not,      // another key, another place, or not the bytes that were sealed
    Unknown,  // of a version that this library does not know
};

// Writes sealed.size() - kSealOverhead bytes; nothing readable unless it returns Yes.
Opened open(const Key& key, const SealPlace& place, std::string_view sealed,
            unsigned char* out) noexcept;

// In a time that depends on nothing but the lengths.
bool same_secret(std::string_view a, std::string_view b) noexcept;

// Overwrites, even if nothing reads the memory afterwards.
void wipe(void* bytes, std::size_t count) noexcept;

}  // namespace idem::core
