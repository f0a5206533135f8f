// The table idempotency.policy: its rows, which of them can be gone by, and what they say. Its
// columns are those of core/policy.hpp.
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
// What idem_policy_set is told, and the row says.
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

// All rows, copied into `context`. Each has a pattern; what else they say is as somebody wrote it.
// An error (55000) if the table is not as the install script makes it.
PolicyRows read_policies(MemoryContext context);

// The same, as they are now and will be until this transaction ends, on whichever node others
// change them. Readers are not held up.
PolicyRows lock_policies(MemoryContext context);

// Adds the row, or puts it in the place of the one with the same pattern.
void write_row(PolicyRow* row);

void delete_row(const PolicyRow& row);

inline std::string_view text_at(const PolicyRow& row, int column) {
    return pg::bytes_of(DatumGetPointer(row.values[column]));
}

inline std::string_view pattern_of(const PolicyRow& row) {
    return text_at(row, kPattern);
}

// A policy that is gone says no more than for how long keys were remembered under it.
inline bool is_dropped(const PolicyRow& row) {
    return DatumGetBool(row.values[kDropped]);
}

// The columns in the order in which their faults are told.
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

// The options that the policy with this pattern has, as an object; nullptr: there is none.
Jsonb* policy_as_json(text* pattern);

// Whether its values may have to be detoasted.
bool is_varlena(int column);

// Whether a value makes sense by itself. Null does.
bool fits(const PolicyRow& row, int column);

// The first column whose value makes no sense, alone or beside the others; nullptr if the row can
// be gone by. idem_policy_set lets no such row in, and neither do the table's constraints as far as
// SQL can tell; this is for rows that came all the same.
const char* unusable_column(const PolicyRow& row);

// Whether the first of two spans is the longer one, in the row or in what holds now where the row
// leaves one of them open.
bool are_out_of_order(const PolicyRow& row, const core::SpansInOrder& spans);

// What a row says that Policy has a member for: which column, and the value to put there.
struct Given {
    struct {
        int column;
        std::int64_t value;
    } options[kOptions];
    int count;
};
Given given_in(const PolicyRow& row);

// Over the settings as they are now, which are capped as arguments are.
core::Policy policy_of(const Given& given);

}  // namespace idem::config
