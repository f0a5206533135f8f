// Claims whose lease has been over for long, found by a walk over the claims in progress of this
// node, a batch at a time.
#pragma once

#include "store/record.hpp"

namespace idem::store {

// How far a walk has come. All zeros: at its beginning.
struct WalkPosition {
    Oid table;
    TimestampTz claimed_at;  // of the last claim that was looked at there
};

struct Overdue {
    Identity* claims;
    int count;
    bool at_end;  // the walk has come round, and `from` is at the beginning again
};

// The next claims in progress whose lease ended before `until`, by their age; at least `limit` of
// them, if there are so many, and those that were claimed at the same moment as the last. As they
// are in the newest snapshot. Moves `from` behind them. In the current memory context.
Overdue find_overdue(WalkPosition* from, TimestampTz until, int limit);

// The first end of a lease among the claims in progress of a scope that are alike.
struct FirstLease {
    text* scope;
    core::IfSilent if_silent;
    TimestampTz lease_until;
};

struct FirstLeases {
    FirstLease* items;
    int count;
    bool complete;  // false: there are so many claims that not all were looked at
};

// Of all claims in progress of this node. In the current memory context.
FirstLeases first_leases();

}  // namespace idem::store
