// Claims whose lease expired long ago. A walk over the claims in progress of this node finds them,
// a batch at a time.
#pragma once

#include "store/record.hpp"

namespace idem::store {

// The position of a walk. All zeros: its beginning.
struct WalkPosition {
    Oid table;
    TimestampTz claimed_at;  // of the last claim read there
};

struct Overdue {
    Identity* claims;
    int count;
    bool at_end;  // the walk is complete, and `from` is at the beginning again
};

// The next claims in progress, by age, whose lease expired before `until`: `limit` of them, if
// there are so many, and those claimed at the same moment as the last. Reads the newest snapshot.
// Moves `from` behind them. Returns them in the current memory context.
Overdue find_overdue(WalkPosition* from, TimestampTz until, int limit);

// The earliest end of a lease, for claims in progress of one scope with the same if_silent.
struct FirstLease {
    text* scope;
    core::IfSilent if_silent;
    TimestampTz lease_until;
};

struct FirstLeases {
    FirstLease* items;
    int count;
    bool complete;  // false: there are too many claims to read all
};

// For all claims in progress of this node. In the current memory context.
FirstLeases first_leases();

}  // namespace idem::store
