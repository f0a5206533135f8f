// Only the combination of the pieces is our own:
// - The key of a record is HKDF with SHA-256 (RFC 5869) of a master key, with a random salt that
//   lies in the row. The AWS Encryption SDK derives a key per message in this way, TLS 1.3 its
//   traffic keys. So a master key never encrypts anything itself.
// - Values are sealed with AES-256-GCM (NIST SP 800-38D) under random nonces of 96 bits. A nonce
//   must not repeat with one key. With one key for everything, that would limit how much it may
//   seal (2^32 values, section 8.3). A key per record does not reach the limit: a record is written
//   a few times, by checkpoints perhaps some thousands, and among 2^20 nonces two are equal with a
//   probability below 2^-56. Two records share a key only if their salts are equal, which is below
//   2^-48 for 2^40 records, and even then only equal nonces would matter. A counter would not
//   survive crashes, failovers and restored backups.
// - The place of a value is additional data: each part with its length, as in a fingerprint, so
//   that a byte that moves from one part to the next is noticed.

#include "core/seal.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstring>
#include <memory>

namespace idem::core {
namespace {

// Version of the format: the first line of the additional data, the info of HKDF, and as a number
// the first byte of a sealed value.
constexpr std::string_view kHeading = "idempotency seal 1\n";
constexpr unsigned char kVersion = 1;

const unsigned char* bytes(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

std::string_view chars(const unsigned char* bytes, std::size_t count) {
    return {reinterpret_cast<const char*>(bytes), count};
}

constexpr std::size_t kHashBytes = 32;

bool hmac(std::string_view key, std::string_view data, unsigned char (&out)[kHashBytes]) {
    return HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes(data), data.size(),
                out, nullptr) != nullptr;
}

using Cipher = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

enum class Direction { Open = 0, Seal = 1 };

// GCM's nonce and tag have OpenSSL's default lengths.
Cipher start(const Key& key, const unsigned char* nonce, Direction direction) {
    Cipher cipher(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
    if (cipher != nullptr && EVP_CipherInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, key, nonce,
                                               static_cast<int>(direction)) != 1)
        cipher.reset();
    return cipher;
}

// Gathers additional data, to pass it on in few calls. The first failure is kept.
class AdditionalData {
  public:
    explicit AdditionalData(EVP_CIPHER_CTX* cipher) : cipher_(cipher) {}

    void add(std::string_view piece) {
        while (!piece.empty()) {
            if (length_ == sizeof buffer_) flush();
            const std::size_t count = std::min(piece.size(), sizeof buffer_ - length_);
            std::memcpy(buffer_ + length_, piece.data(), count);
            length_ += count;
            piece.remove_prefix(count);
        }
    }

    void add_field(std::string_view field) {
        char length[24];
        const char* end = std::to_chars(length, length + sizeof length, field.size()).ptr;
        add({length, static_cast<std::size_t>(end - length)});
        add(":");
        add(field);
        add("\n");
    }

    bool finish() {
        flush();
        return good_;
    }

  private:
    void flush() {
        int written = 0;
        good_ = good_ && EVP_CipherUpdate(cipher_, nullptr, &written, buffer_,
                                          static_cast<int>(length_)) == 1;
        length_ = 0;
    }

    EVP_CIPHER_CTX* cipher_;
    unsigned char buffer_[512];
    std::size_t length_ = 0;
    bool good_ = true;
};

bool bind_to(EVP_CIPHER_CTX* cipher, const SealPlace& place) {
    AdditionalData data(cipher);
    data.add(kHeading);
    for (const std::string_view field :
         {place.key_id, place.column, place.scope, place.principal, place.key})
        data.add_field(field);
    return data.finish();
}

bool bind_to(EVP_CIPHER_CTX* cipher, std::string_view bytes) {
    AdditionalData data(cipher);
    data.add(bytes);
    return data.finish();
}

// GCM writes as many bytes as it reads; its final call writes none.
bool pass(EVP_CIPHER_CTX* cipher, std::string_view from, unsigned char* to) {
    int written = 0;
    return from.empty() ||
           (from.size() <= INT_MAX && EVP_CipherUpdate(cipher, to, &written, bytes(from),
                                                       static_cast<int>(from.size())) == 1);
}

bool finish(EVP_CIPHER_CTX* cipher) {
    unsigned char none[EVP_MAX_BLOCK_LENGTH];
    int written = 0;
    return EVP_CipherFinal_ex(cipher, none, &written) == 1;
}

bool set_tag(EVP_CIPHER_CTX* cipher, std::string_view tag) {
    return EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_SET_TAG, kTagBytes,
                               const_cast<char*>(tag.data())) == 1;
}

template <typename Place>
bool encrypt_for(const Place& place, const Key& key, const unsigned char* nonce,
                 std::string_view plain, unsigned char* out) {
    const Cipher cipher = start(key, nonce, Direction::Seal);
    return cipher != nullptr && bind_to(cipher.get(), place) && pass(cipher.get(), plain, out) &&
           finish(cipher.get()) &&
           EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, out + plain.size()) ==
               1;
}

}  // namespace

bool encrypt(const Key& key, const Nonce& nonce, std::string_view additional,
             std::string_view plain, unsigned char* out) noexcept {
    return encrypt_for(additional, key, nonce, plain, out);
}

bool random_bytes(unsigned char* out, std::size_t count) noexcept {
    return RAND_bytes(out, static_cast<int>(count)) == 1;
}

// By HMAC directly: OpenSSL's own HKDF takes five times as long, mostly to look algorithms up.
bool hkdf(std::string_view secret, std::string_view salt, std::string_view info, unsigned char* key,
          std::size_t length) noexcept {
    constexpr std::size_t kLongestInfo = 128;
    struct {
        unsigned char extracted[kHashBytes];
        unsigned char block[kHashBytes];
        unsigned char input[kHashBytes + kLongestInfo + 1];
    } own;
    bool good = info.size() <= kLongestInfo && length <= 255 * kHashBytes &&
                hmac(salt, secret, own.extracted);
    std::size_t before = 0;  // bytes of the block before
    for (unsigned char number = 1; good && length > 0; ++number) {
        unsigned char* end = std::copy_n(own.block, before, own.input);
        end = std::copy(info.begin(), info.end(), end);
        *end++ = number;
        good = hmac(chars(own.extracted, kHashBytes),
                    chars(own.input, static_cast<std::size_t>(end - own.input)), own.block);
        before = kHashBytes;
        const std::size_t count = std::min(length, kHashBytes);
        key = std::copy_n(own.block, count, key);
        length -= count;
    }
    wipe(&own, sizeof own);
    return good;
}

bool derive_key(const Key& master, std::string_view salt, Key& key) noexcept {
    return hkdf(chars(master, kKeyBytes), salt, kHeading, key, kKeyBytes);
}

bool derive_check(const Key& master, KeyCheck& check) noexcept {
    return hkdf(chars(master, kKeyBytes), {}, "idempotency key check 1\n", check, kCheckBytes);
}

bool seal(const Key& key, const SealPlace& place, std::string_view plain,
          unsigned char* out) noexcept {
    Nonce nonce;
    return random_bytes(nonce, kNonceBytes) && seal_with_nonce(key, place, nonce, plain, out);
}

bool seal_with_nonce(const Key& key, const SealPlace& place, const Nonce& nonce,
                     std::string_view plain, unsigned char* out) noexcept {
    *out = kVersion;
    unsigned char* encrypted = std::copy_n(nonce, kNonceBytes, out + 1);
    return encrypt_for(place, key, nonce, plain, encrypted);
}

// GCM deciphers before it checks the tag, so the output is wiped if the tag differs.
Opened open(const Key& key, const SealPlace& place, std::string_view sealed,
            unsigned char* out) noexcept {
    if (!sealed.empty() && static_cast<unsigned char>(sealed.front()) != kVersion)
        return Opened::Unknown;
    if (sealed.size() < kSealOverhead) return Opened::Not;
    const std::string_view encrypted =
        sealed.substr(1 + kNonceBytes, sealed.size() - kSealOverhead);
    const Cipher cipher = start(key, bytes(sealed) + 1, Direction::Open);
    if (cipher != nullptr && bind_to(cipher.get(), place) && pass(cipher.get(), encrypted, out) &&
        set_tag(cipher.get(), sealed.substr(sealed.size() - kTagBytes)) && finish(cipher.get()))
        return Opened::Yes;
    wipe(out, encrypted.size());
    return Opened::Not;
}

bool same_secret(std::string_view a, std::string_view b) noexcept {
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void wipe(void* bytes, std::size_t count) noexcept {
    OPENSSL_cleanse(bytes, count);
}

}  // namespace idem::core
