// Claiming records that are due, for a worker: their keys are not named, but found.
#pragma once

#include "config/policy.hpp"
#include "store/record.hpp"

namespace idem::claim {

struct DueQuestion {
    text* pattern;  // a scope, or the beginning of scopes and "*"
    int most;       // claims to grant
    std::optional<std::int64_t> lease;
    text* holder;
};

// Calls take(record, argument) with each granted claim, oldest due first. Passes over a record that
// another session is at work on, of a scope that is closed to the caller, of a principal with too
// many open claims, that does not open, or that the transaction's snapshot is too old for. Ends
// early where the lock table is full. Waits for no key.
void claim_due(const DueQuestion& asked, void (*take)(const store::Record&, void*), void* argument);

// When claim_due() may grant the record, if nothing changes; kNoTime: never.
TimestampTz due_at(const store::Record& record, const core::Policy& policy);

}  // namespace idem::claim
