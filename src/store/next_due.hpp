// The time when the first row that is removed by age is due, if there are no writes until then.
// DT_NOEND: there is none. It may be too early, but never too late.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

// Of the records of this node: after the retention and idempotency.cleanup_grace.
TimestampTz next_expired_record();

TimestampTz next_expired_attempt();

// By idempotency.audit_retention, or at once where the chain has work.
TimestampTz next_audit();

}  // namespace idem::store
