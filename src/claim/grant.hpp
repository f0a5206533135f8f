// Granting a claim: the record of a new attempt, with a fencing token of its own.
#pragma once

#include "claim/question.hpp"

namespace idem::claim {

// Opens a claim in this transaction, whose lock the caller holds, and completes the answer that was
// decided at `now`. False if somebody who ignores that lock is writing the record, and has not
// ended within `left` microseconds, or has written it. An error (40001) if the work would not see
// all that earlier attempts have done.
bool grant(const Question& question, TimestampTz now, std::int64_t left, Answer* answer);

// A token larger than `previous`, the record's last one (0: it has had none), and larger than any
// that this server has handed out since it started, so that neither a forgotten record nor a clock
// that steps back brings one back. Where there is no shared memory, this session's own count.
std::int64_t new_token(std::int64_t previous);

// Called while the library is preloaded.
void request_token_memory();

}  // namespace idem::claim
