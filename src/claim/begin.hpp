// idem_begin and idem_once: who asks for a key, and what they are told; and what they would be
// told.
#pragma once

#include "claim/locks.hpp"
#include "claim/question.hpp"

namespace idem::claim {

// Answers with one row of the outcome table. With Execute, the transaction holds the claim.
Answer begin(const Question& question);

// idem_once: claims and completes without a response. True the first time, false after.
bool once(const Question& question);

// What somebody would be told at once who asks now and whose work takes its snapshot afterwards.
struct Forecast {
    core::Decision decision;
    TimestampTz now;
    KeyHolder holder;  // the transaction that has the key, whatever the decision
    Answer seen;       // the newest committed record, or this transaction's own
};

// Goes the way of begin() without a lock, a write or a count. `settled` is a question that settle()
// has filled in.
Forecast foresee(const Question& settled);

}  // namespace idem::claim
