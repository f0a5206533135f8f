// Fencing tokens.
//
// A token is the microseconds since 2000-01-01: a readable time, below 2^53 (the limit of numbers
// in JavaScript and JSON) until the year 2285. Not a sequence: a sequence repeats values after a
// crash or failover.
#pragma once

#include <cstdint>

namespace idem::core {

// The time of a new token: `now`, or one microsecond after the last such time of this server (0:
// none), so that it never repeats, whatever the clock does. Both are microseconds since 2000-01-01.
std::int64_t token_time(std::int64_t now, std::int64_t last) noexcept;

// The token after a record's `previous` one (0: none): the time, where that is greater. Only
// otherwise are the low 16 bits of `random` used.
std::int64_t next_token(std::int64_t time, std::uint32_t random, std::int64_t previous) noexcept;

}  // namespace idem::core
