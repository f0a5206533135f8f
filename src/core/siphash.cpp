#include "core/siphash.hpp"

#include <cstring>

namespace idem::core {
namespace {

constexpr std::uint64_t rotate(std::uint64_t word, int bits) noexcept {
    return (word << bits) | (word >> (64 - bits));
}

// Eight bytes as a word whose least significant byte is the first.
std::uint64_t word_at(const char* bytes) noexcept {
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof(word));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

// The bytes after the whole words of a text, fewer than eight. A longer text is read from its end.
std::uint64_t rest_of(std::string_view text) noexcept {
    const std::size_t left = text.size() % 8;
    if (left == 0) return 0;
    if (text.size() >= 8) return word_at(text.data() + text.size() - 8) >> (8 * (8 - left));
    std::uint64_t word = 0;
    for (std::size_t i = left; i > 0; --i)
        word = (word << 8) | static_cast<unsigned char>(text[i - 1]);
    return word;
}

class Hash {
  public:
    explicit Hash(const SipKey& key) noexcept
        : v0_(key.low ^ 0x736f6d6570736575),
          v1_(key.high ^ 0x646f72616e646f6d),
          v2_(key.low ^ 0x6c7967656e657261),
          v3_(key.high ^ 0x7465646279746573) {}

    // The bytes follow those added before, at any place of a word.
    void add(std::string_view text) noexcept {
        for (std::size_t i = 0; i + 8 <= text.size(); i += 8) add_bytes(word_at(&text[i]), 8);
        if (text.size() % 8 != 0) add_bytes(rest_of(text), text.size() % 8);
    }

    // The first `count` bytes of a word, the others being zero.
    void add_bytes(std::uint64_t word, std::size_t count) noexcept {
        const std::size_t before = 8 * held_;
        waiting_ |= word << before;
        length_ += count;
        held_ += count;
        if (held_ < 8) return;
        held_ -= 8;
        add_word(waiting_);
        waiting_ = before == 0 ? 0 : word >> (64 - before);
    }

    std::uint64_t value() noexcept {
        add_word(waiting_ | (length_ << 56));
        v2_ ^= 0xff;
        for (int i = 0; i < 4; ++i) turn();
        return v0_ ^ v1_ ^ v2_ ^ v3_;
    }

  private:
    void add_word(std::uint64_t word) noexcept {
        v3_ ^= word;
        turn();
        turn();
        v0_ ^= word;
    }

    void turn() noexcept {
        v0_ += v1_;
        v1_ = rotate(v1_, 13) ^ v0_;
        v0_ = rotate(v0_, 32);
        v2_ += v3_;
        v3_ = rotate(v3_, 16) ^ v2_;
        v0_ += v3_;
        v3_ = rotate(v3_, 21) ^ v0_;
        v2_ += v1_;
        v1_ = rotate(v1_, 17) ^ v2_;
        v2_ = rotate(v2_, 32);
    }

    std::uint64_t v0_, v1_, v2_, v3_;
    std::uint64_t waiting_ = 0;  // bytes that do not fill a word yet
    std::size_t held_ = 0;       // how many
    std::uint64_t length_ = 0;   // of all; its lowest byte counts
};

}  // namespace

SipKey sip_key(const std::array<unsigned char, kSipKeyBytes>& bytes) noexcept {
    char chars[kSipKeyBytes];
    std::memcpy(chars, bytes.data(), kSipKeyBytes);
    return {word_at(chars), word_at(chars + 8)};
}

std::uint64_t sip_hash(const SipKey& key, std::string_view bytes) noexcept {
    Hash hash(key);
    hash.add(bytes);
    return hash.value();
}

// A word of lengths comes first: four bytes each of the first and of the second text.
std::uint64_t sip_hash(const SipKey& key, std::string_view first, std::string_view second,
                       std::string_view third) noexcept {
    Hash hash(key);
    hash.add_bytes((std::uint64_t{second.size()} << 32) | (first.size() & 0xffffffff), 8);
    hash.add(first);
    hash.add(second);
    hash.add(third);
    return hash.value();
}

}  // namespace idem::core
