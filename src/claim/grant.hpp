// Granting a claim: the record of a new attempt.
#pragma once

#include "claim/judge.hpp"

namespace idem::claim {

// Opens a claim in this transaction, whose lock the caller holds, and completes the answer.
void grant(const Asking& asking, Judgement* judgement);

// A token larger than the record's last one.
std::int64_t new_token(std::int64_t previous);

}  // namespace idem::claim
