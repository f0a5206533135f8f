// When the first of the rows is due that are removed by age, if nobody writes until then. Each of
// these is DT_NOEND where there is none, and may be too early, but never too late.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

// Of the records of this node: the end of the retention, and of idempotency.cleanup_grace.
TimestampTz next_expired_record();

TimestampTz next_expired_attempt();

// By idempotency.audit_retention.
TimestampTz next_expired_audit();

}  // namespace idem::store
