// Abandoned claims. A policy sets the time after which they end (abandon_after), and how
// (on_abandon).
#pragma once

#include "core/policy.hpp"
#include "store/overdue.hpp"
#include "store/record.hpp"

namespace idem::claim {

struct Abandoned {
    std::int64_t claims;
    bool at_end;  // all claims have been looked at
};

// The time at which a claim is given up, if its session does not live. kNoTime: the policy has no
// abandon_after, or the record already has the status that on_abandon sets.
TimestampTz given_up_at(const store::Record& record, const core::Policy& policy);

// Looks at the next `limit` claims with an expired lease, and moves `from` behind them. Ends,
// releases or marks as unknown those that are due, each under its key's lock. It skips a claim
// whose lock is taken, whose lease was prolonged, whose session lives, or whose policy is invalid.
// Reads nothing where no policy has abandon_after.
Abandoned abandon(store::WalkPosition* from, int limit);

// When the first claim is due to be given up, if no session writes until then; DT_NOEND: none is.
// It may be too early, never too late: a claim that abandon() skips counts as due, and with too
// many claims the answer is DT_NOBEGIN.
TimestampTz next_abandonment();

}  // namespace idem::claim
