// Whether the holder of a committed claim still lives: its lease runs, and, where it was claimed
// with `hold`, so does the backend that the record names. Liveness carries no exclusion; it only
// shortens the wait for a lease.
//
// A session-level lock would say the same, but pg_advisory_unlock_all(), which drivers call to
// reset a session, and DISCARD ALL give up every one of them.
#pragma once

#include "store/record.hpp"

namespace idem::claim {

// Notes this backend in a record that is claimed with `hold`.
void name_this_backend(store::Record* record);

// From here on no backend stands for the claim.
void name_no_backend(store::Record* record);

// Whether the backend with this pid is the one that began at `start`. On a standby always true: the
// backend runs on another server, and only the lease can be judged.
bool backend_lives(std::int32_t pid, TimestampTz start);

// Whether the record names a backend that is gone.
bool holder_is_gone(const store::Record& record);

// Whether a claim is alive at `now`: nobody takes it over, and nobody may forget it. The views ask
// it, too, as idempotency.claim_lives.
bool claim_lives(const store::Record& record, TimestampTz now);

// Whether a claim has died whose policy forbids to take it over: an operator decides.
bool is_unknown(const store::Record& record, TimestampTz now);

}  // namespace idem::claim
