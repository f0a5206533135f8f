// A call of idem_begin with everything settled: arguments over policy over settings.
#pragma once

#include "core/decision.hpp"

#include "claim/begin.hpp"

namespace idem::claim {

inline constexpr std::int64_t kForEver = INT64_MAX;

struct Asking {
    store::Identity id;
    bytea* fingerprint;   // nullptr: not known
    Jsonb* hashed;        // what it was taken of; nullptr: the caller gave it
    ArrayType* excluded;  // and without which fields; nullptr: none
    text* operation;      // nullptr: not known
    Jsonb* request;       // to be stored; nullptr: not
    text* holder;
    bool hold;
    std::int64_t ttl;
    std::int64_t lease;
    std::int64_t wait;  // kForEver: without limit
    std::int64_t retention;
    std::int32_t body_limit;  // of the result
    bool omit_large_body;
    core::Question asked;  // `now` is set for each look

    // The snapshot with which the work will see the database, if that is taken already: then only
    // what it knows of may have come before. nullptr: the work gets a newer one.
    Snapshot fixed;
    TimestampTz fixed_since;  // it was not taken earlier than that
};

// Refuses what the policy forbids, before anything is granted.
Asking settle(const BeginCall& call);

}  // namespace idem::claim
