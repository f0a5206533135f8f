// The table idempotency.policy: its rows, their validity, and their values. Its columns are those
// of core/policy.hpp.
#pragma once

#include "core/policy.hpp"

#include "pg/datum.hpp"

namespace idem::config {

inline constexpr const char* kPolicyTable = "policy";

inline constexpr int kPattern = core::policy_column("scope_pattern");
inline constexpr int kFingerprintFields = core::policy_column("fingerprint_fields");
inline constexpr int kExcludeFields = core::policy_column("exclude_fields");
inline constexpr int kErrorStatuses = core::policy_column("error_statuses");
inline constexpr int kAllowedRole = core::policy_column("allowed_role");
inline constexpr int kSince = core::policy_column("since");
inline constexpr int kMemoryBefore = core::policy_column("memory_before");
inline constexpr int kDropped = core::policy_column("dropped");
// The options: arguments of idem_policy_set, and columns of the row.
inline constexpr int kOptions = kSince;

struct PolicyRow {
    Datum values[core::kPolicyColumnCount];
    bool nulls[core::kPolicyColumnCount];
};

struct PolicyRows {
    PolicyRow* rows;
    std::size_t count;

    PolicyRow* begin() const { return rows; }
    PolicyRow* end() const { return rows + count; }
};

// All rows, copied into `context`. Each has a pattern; the other values may be invalid, since rows
// can be written by hand. An error (55000) if the table is not as the install script makes it.
PolicyRows read_policies(MemoryContext context);

// The same, locked: rows stay as they are until this transaction ends, whichever node others change
// them on. Readers do not wait.
PolicyRows lock_policies(MemoryContext context);

// Adds the row, or replaces the one with the same pattern.
void write_row(PolicyRow* row);

void delete_row(const PolicyRow& row);

inline std::string_view text_at(const PolicyRow& row, int column) {
    return pg::bytes_of(DatumGetPointer(row.values[column]));
}

inline std::string_view pattern_of(const PolicyRow& row) {
    return text_at(row, kPattern);
}

// The row of a dropped policy says only how long keys were remembered under it.
inline bool is_dropped(const PolicyRow& row) {
    return DatumGetBool(row.values[kDropped]);
}

// The columns in the order in which faults are reported.
struct CheckOrder {
    int columns[core::kPolicyColumnCount];
};
constexpr CheckOrder check_order() {
    CheckOrder order{};
    int count = 0;
    for (int type = 0; count < core::kPolicyColumnCount; type++)
        for (int i = 0; i < core::kPolicyColumnCount; i++)
            if (static_cast<int>(core::kPolicyColumns[i].type) == type) order.columns[count++] = i;
    return order;
}
inline constexpr CheckOrder kCheckOrder = check_order();

// The options of the policy with this pattern, as an object; nullptr: there is no such policy.
Jsonb* policy_as_json(text* pattern);

// Whether its values may need detoasting.
bool is_varlena(int column);

// Whether a value is valid by itself. Null is.
bool fits(const PolicyRow& row, int column);

// The first column whose value is invalid, alone or with the others; nullptr: the row is valid.
// idem_policy_set refuses such a row, and so do the table's constraints as far as SQL can check.
// This is for rows that came in by other ways.
const char* unusable_column(const PolicyRow& row);

// Whether the first of two spans is the longer one; the value in force stands in for one that the
// row leaves open.
bool are_out_of_order(const PolicyRow& row, const core::SpansInOrder& spans);

// Whether two rows say the same of an option. Spans are compared by their length.
bool is_same(const PolicyRow& row, const PolicyRow& other, int column);

// A value of the row that Policy has a member for: its column, and the value to put there.
struct Given {
    struct {
        int column;
        std::int64_t value;
    } options[kOptions];
    int count;
};
Given given_in(const PolicyRow& row);

// Puts the row over today's settings, which are capped as arguments are.
core::Policy policy_of(const Given& given);

}  // namespace idem::config
