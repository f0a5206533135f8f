// One look at a key: find its record and let the outcome table decide.
#pragma once

#include "claim/answer.hpp"
#include "claim/asking.hpp"

namespace idem::claim {

// What a look found. `claim` says what an Execute would do with the row.
struct Judgement {
    Answer answer;
    core::Claim claim;
    TimestampTz now;
};

Judgement judge(const Asking& asking);

// True unless both fingerprints are known and differ.
bool same_fingerprint(const bytea* a, const bytea* b);

}  // namespace idem::claim
