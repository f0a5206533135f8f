// Claims whose holder did not come back: a policy says after how long (abandon_after), and what
// becomes of them (on_abandon).
#pragma once

#include "core/policy.hpp"
#include "store/overdue.hpp"
#include "store/record.hpp"

namespace idem::claim {

struct Abandoned {
    std::int64_t claims;
    bool at_end;  // all claims have been looked at
};

// From when on a claim is given up, if its session does not live; kNoTime: the policy says nothing
// of it, or it is already what on_abandon makes of it.
TimestampTz given_up_at(const store::Record& record, const core::Policy& policy);

// Looks at the next claims whose lease is over, ends, releases or marks as unknown what is due of
// them, at most `limit` claims, and moves `from` behind them. Each under its key's lock, which is
// not waited for: a key with a transaction at work is passed over, and so is a claim whose lease
// has been prolonged, whose session lives, or whose policy can't be gone by. Nothing is read where
// no policy says abandon_after.
Abandoned abandon(store::WalkPosition* from, int limit);

// When the first claim is due to be given up, if no session writes until then; DT_NOEND: none is.
// It may be too early, but never too late: a claim that is due and left alone is one that is due,
// and among too many claims one may be.
TimestampTz next_abandonment();

}  // namespace idem::claim
