// Fencing tokens: milliseconds since 1970 above 20 random bits, always larger than the last one of
// the same record. Not a sequence: a sequence hands values out again after a crash or failover.
#pragma once

#include <cstdint>

namespace idem::core {

inline constexpr int kTokenRandomBits = 20;

// The token that follows `previous` (0 when the record has had none). Only the low 20 bits of
// `random` are used. A clock that stood still or stepped back can't make a token smaller.
std::int64_t next_token(std::int64_t unix_millis, std::uint32_t random,
                        std::int64_t previous) noexcept;

}  // namespace idem::core
