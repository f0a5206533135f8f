// idem_begin and idem_once: a call for a key, and its answer; and the answer that it would get
// (idem_explain).
#pragma once

#include "claim/locks.hpp"
#include "claim/question.hpp"
#include "claim/state.hpp"

namespace idem::claim {

// The decision about a record that was found at `now` (nullptr: none), whose status becomes the one
// of that moment.
core::Decision decision_about(store::Record* record, const Settled& question, TimestampTz now);

// Counts the answer, and logs it where the settings want that; `waited` is in microseconds.
void account_for(const Answer& answer, std::int64_t waited = 0);

// Answers with one row of the outcome table. With Execute, the transaction holds the claim.
Answer begin(const Question& question);

// idem_once: claims and completes without a response. True the first time, false after.
bool once(const Question& question);
bool once(const Settled& settled);

// The answer that a call would get at once which asks now and whose work takes its snapshot
// afterwards.
struct Forecast {
    core::Decision decision;
    TimestampTz now;
    KeyHolder holder;  // the transaction that has the key, whatever the decision
    Answer seen;       // the newest committed record, or this transaction's own
};

// Goes the way of begin() without a lock, a write or a count.
Forecast foresee(const Settled& settled);

}  // namespace idem::claim
