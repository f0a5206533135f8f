// How much a sweeper rests.
#pragma once

#include <cstdint>

namespace idem::core {

// The rest after a batch that took `worked`: nine times as long, so that callers hardly feel that a
// million records expire at once; they are gone in a minute or two. Where more expire than can be
// removed in that way, the oldest that is left becomes older and older: once it is more than five
// minutes older than it was (`behind`), the rest shrinks in proportion, until the sweeper keeps up.
// Microseconds; negative input counts as zero.
std::int64_t rest_after(std::int64_t worked, std::int64_t behind) noexcept;

}  // namespace idem::core
