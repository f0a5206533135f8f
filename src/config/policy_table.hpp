// The table idempotency.policy.
#pragma once

#include "pg/internal.hpp"

namespace idem::config {

// In the order of the table, of the statements and of the arguments of idem_policy_set.
enum PolicyColumn {
    kPattern,
    kTtl,
    kRetention,
    kLease,
    kWait,
    kMaxAttempts,
    kRetryBase,
    kRetryCap,
    kKeyRequired,
    kFingerprintRequired,
    kStoreRequest,
    kOnLeaseExpiry,
    kMaxBodyBytes,
    kOnLargeBody,
    kExcludeFields,
    kDropHeaders,
    kAllowedRole,
    kPolicyColumns
};

struct PolicyRow {
    Datum values[kPolicyColumns];
    bool nulls[kPolicyColumns];
};

struct PolicyRows {
    PolicyRow* rows;
    std::size_t count;
};

// All rows, copied into `context`.
PolicyRows read_policies(MemoryContext context);

// Adds the row, or puts it in the place of the one with the same pattern.
void write_policy(Datum* values, const char* nulls);

// False if there is no such pattern.
bool drop_policy(text* pattern);

}  // namespace idem::config
