// Claims whose lease has been over for long: found by a walk over the records of this node, a slice
// at a time, which no index has to serve.
#pragma once

#include "store/record.hpp"

namespace idem::store {

// How far a walk has come. All zeros: at its beginning.
struct WalkPosition {
    Oid table;
    BlockNumber block;
    OffsetNumber row;  // the last one that was looked at in that block
};

struct Overdue {
    Identity* claims;
    int count;
    bool at_end;  // the walk has come round, and `from` is at the beginning again
};

// The claims in progress, in the next so many blocks, whose lease ended before `until`; at most
// `limit` of them, as they are in the newest snapshot. Moves `from` behind them. In the current
// memory context.
Overdue find_overdue(WalkPosition* from, BlockNumber blocks, TimestampTz until, int limit);

}  // namespace idem::store
