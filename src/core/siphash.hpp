// SipHash-2-4 (Aumasson and Bernstein, 2012): a hash with a key. Without the key, an attacker can
// neither find two inputs with the same hash nor learn the key from hashes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace idem::core {

inline constexpr std::size_t kSipKeyBytes = 16;

struct SipKey {
    std::uint64_t low;
    std::uint64_t high;
};

// The bytes are as the algorithm reads them, the least significant first.
SipKey sip_key(const std::array<unsigned char, kSipKeyBytes>& bytes) noexcept;

std::uint64_t sip_hash(const SipKey& key, std::string_view bytes) noexcept;

// Of several texts in order; ('a', 'b') and ('ab', '') have different hashes.
std::uint64_t sip_hash(const SipKey& key, std::string_view first, std::string_view second,
                       std::string_view third) noexcept;

}  // namespace idem::core
