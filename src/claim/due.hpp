// Claiming records that are due, for a worker: their keys are not named, but found.
#pragma once

#include "config/policy.hpp"
#include "store/due.hpp"
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
// many open claims, that does not open, or that the transaction's snapshot is too old for. Grants
// fewer where the lock table is full. Waits for no key.
void claim_due(const DueQuestion& asked, void (*take)(const store::Record&, void*), void* argument);

// How many records of a scope claim_due() may grant, and since when the oldest is due.
struct DueOfScope {
    text* scope;
    std::int64_t records;
    TimestampTz oldest;
};

// By the policies of now, for all scopes of a table of this node. In the current memory context.
DueOfScope* due_by_scope(Oid table, TimestampTz now, int* count);

// When claim_due() may grant the record, if nothing changes; kNoTime: never, or no longer.
TimestampTz due_at(const store::Record& record, const core::Policy& policy, TimestampTz now);

}  // namespace idem::claim
