// What a row of idempotency.policy may say. idem_policy_set lets nothing else in, and neither do
// the table's constraints as far as SQL can tell; this is for rows that came all the same.
#pragma once

#include "config/policy_table.hpp"

namespace idem::config {

// The first column whose value makes no sense; nullptr if the row can be gone by. Fields to exclude
// are read where a fingerprint is taken, which refuses the request before anything is granted.
const char* unusable_column(const PolicyRow& row);

}  // namespace idem::config
