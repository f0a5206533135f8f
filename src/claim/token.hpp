// Fencing tokens, each of which this server hands out once.
#pragma once

#include "pg/pg.hpp"

namespace idem::claim {

// A token larger than `previous`, the record's last one (0: it has had none), and larger than any
// that this server has handed out since it started, so that neither a forgotten record nor a clock
// that steps back brings one back. Where there is no shared memory, this session's own count.
std::int64_t new_token(std::int64_t previous);

// Called while the library is preloaded.
void request_token_memory();

}  // namespace idem::claim
