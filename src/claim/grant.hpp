// Granting a claim: the record of a new attempt.
#pragma once

#include "claim/question.hpp"
#include "claim/state.hpp"

namespace idem::claim {

// Opens a claim in this transaction, whose lock the caller holds, and completes the answer that was
// decided at `now`. False if a transaction that ignores that lock is writing the record, and has
// not ended within `left` microseconds, or has written it. An error (40001) if the work would not
// see all that earlier attempts have done.
bool grant(const Settled& question, TimestampTz now, std::int64_t left, Answer* answer);

// The record of that claim, for a caller that has the lock and ends the claim before it is written.
store::Record claimed_record(const Settled& question, TimestampTz now, const Answer& answer);

// Which of its errors grant() would raise for the record that was found: that its principal has too
// many claims, or that the work would not see all of the attempts before.
enum class Hindrance { None, NoRoom, OldSnapshot };
Hindrance hindrance_of(const Settled& question, TimestampTz now, const Answer& answer);

}  // namespace idem::claim
