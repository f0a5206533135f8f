// The table idempotency.policy.
#pragma once

#include "pg/owner.hpp"

namespace idem::config {

// In the order of the table, of the statements and, before kSince, of the arguments of
// idem_policy_set.
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
    kFinalErrors,
    kAllowedRole,
    kSince,
    kMemoryBefore,
    kDropped,
    kPolicyColumns
};

struct PolicyColumnType {
    const char* name;
    Oid type;
};
inline constexpr PolicyColumnType kPolicyColumnTypes[kPolicyColumns] = {
    {"scope_pattern", TEXTOID},
    {"ttl", INTERVALOID},
    {"retention", INTERVALOID},
    {"lease", INTERVALOID},
    {"wait", INTERVALOID},
    {"max_attempts", INT4OID},
    {"retry_base", INTERVALOID},
    {"retry_cap", INTERVALOID},
    {"key_required", BOOLOID},
    {"fingerprint_required", BOOLOID},
    {"store_request", BOOLOID},
    {"on_lease_expiry", TEXTOID},
    {"max_body_bytes", INT4OID},
    {"on_large_body", TEXTOID},
    {"exclude_fields", TEXTARRAYOID},
    {"drop_headers", TEXTARRAYOID},
    {"final_errors", TEXTARRAYOID},
    {"allowed_role", NAMEOID},
    {"since", TIMESTAMPTZOID},
    {"memory_before", INTERVALOID},
    {"dropped", BOOLOID},
};

struct PolicyRow {
    Datum values[kPolicyColumns];
    bool nulls[kPolicyColumns];
};

struct PolicyRows {
    PolicyRow* rows;
    std::size_t count;

    PolicyRow* begin() const { return rows; }
    PolicyRow* end() const { return rows + count; }
};

// All rows, copied into `context`. Each has a pattern; what else they say is as somebody wrote it.
// An error (55000) if the table is not as the install script makes it.
PolicyRows read_policies(MemoryContext context);

// Adds the row, or puts it in the place of the one with the same pattern.
void write_row(PolicyRow* row);

void delete_row(const PolicyRow& row);

}  // namespace idem::config
