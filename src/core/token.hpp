// Fencing tokens.
//
// A token is the microseconds since 2000-01-01: a time that one can read, below 2^53 until the year
// 2285, where JavaScript's and JSON's numbers end. Not a sequence: a sequence hands values out
// again after a crash or failover.
#pragma once

#include <cstdint>

namespace idem::core {

// The time that a token is made of: `now`, or one microsecond after the last such time of this
// server (0: there was none), so that it never comes twice, whatever the clock does. Both are
// microseconds since 2000-01-01.
std::int64_t token_time(std::int64_t now, std::int64_t last) noexcept;

// The token that follows a record's `previous` one (0: it has had none): the time, where that is
// greater. Only the low 16 bits of `random` are used, and only where it is not.
std::int64_t next_token(std::int64_t time, std::uint32_t random, std::int64_t previous) noexcept;

}  // namespace idem::core
