// The end of an attempt, however it came about.
#pragma once

#include "config/policy.hpp"
#include "store/record.hpp"

namespace idem::claim {

// No writing where nothing can be written, and the policy of the scope decides who may and what
// holds: every call on a claim begins like this.
config::ScopePolicy enter(const char* function, const store::Identity& id);

// Puts the result's status and time into the record. What a later attempt would need to go on is
// dropped from a final one.
void mark_ended(core::Status status, store::Record* record);

// What the policy at the claim allowed its result to be stays allowed, for its effect has happened.
void allow_as_claimed(const store::Record& record, core::Policy* policy);

// The ttl counts from the claim. If less than half of it would be left after `end` (the end of long
// work, or the next attempt's time), ttl and retention count from there instead: whoever waited for
// the answer must get it, and not be told to run the request again.
void keep_long_enough(TimestampTz end, store::Record* record);

// What cannot go on by itself, or has come half of the way, is not forgotten by age: a retryable
// record that is exhausted, or has a recovery point, stays until it is decided. Its times are
// infinite.
void keep_if_undecided(const core::Policy& policy, store::Record* record);

}  // namespace idem::claim
