#include "config/policy_rows.hpp"

#include "config/policy_check.hpp"
#include "config/settings.hpp"
#include "pg/datum.hpp"

namespace idem::config {

namespace {

// What can't be read may have been anything, so it counts as the least: for as long as it stands
// there nothing is claimed under it.
constexpr std::int64_t kLeast = 1;

void set_micros(const PolicyRow& row, PolicyColumn column, std::int64_t* value) {
    if (!row.nulls[column]) *value = pg::micros_of(DatumGetIntervalP(row.values[column]));
}

void set_bool(const PolicyRow& row, PolicyColumn column, bool* value) {
    if (!row.nulls[column]) *value = DatumGetBool(row.values[column]);
}

void apply_limits(const PolicyRow& row, core::Policy* policy) {
    if (!row.nulls[kMaxAttempts]) policy->max_attempts = DatumGetInt32(row.values[kMaxAttempts]);
    if (!row.nulls[kMaxBodyBytes])
        policy->max_body_bytes = DatumGetInt32(row.values[kMaxBodyBytes]);
    if (!row.nulls[kOnLeaseExpiry])
        policy->on_lease_expiry = *core::on_lease_expiry_from_word(text_at(row, kOnLeaseExpiry));
    if (!row.nulls[kOnLargeBody])
        policy->on_large_body = *core::on_large_body_from_word(text_at(row, kOnLargeBody));
}

std::int64_t span_of(const core::Policy& policy) {
    return Max(policy.ttl, policy.retention);
}

// Of a row by itself.
core::Memory memory_of_row(const PolicyRow& row) {
    if (unusable_column(row) != nullptr) return {kLeast, PG_INT64_MAX, kLeast};
    std::int64_t span = span_of(values_of(row));
    if (row.nulls[kSince]) return core::unchanged_memory(span);
    return {span, DatumGetTimestampTz(row.values[kSince]),
            pg::micros_of(DatumGetIntervalP(row.values[kMemoryBefore]))};
}

}  // namespace

std::string_view text_at(const PolicyRow& row, PolicyColumn column) {
    return pg::bytes_of(DatumGetPointer(row.values[column]));
}

core::Policy values_of(const PolicyRow& row) {
    core::Policy policy = default_policy();
    set_micros(row, kTtl, &policy.ttl);
    set_micros(row, kRetention, &policy.retention);
    set_micros(row, kLease, &policy.lease);
    set_micros(row, kWait, &policy.wait);
    set_micros(row, kRetryBase, &policy.retry_base);
    set_micros(row, kRetryCap, &policy.retry_cap);
    set_bool(row, kKeyRequired, &policy.key_required);
    set_bool(row, kFingerprintRequired, &policy.fingerprint_required);
    set_bool(row, kStoreRequest, &policy.store_request);
    apply_limits(row, &policy);
    return policy;
}

core::Memory memory_of(const PolicyRows& policies, Rank rank, std::string_view scopes,
                       const PolicyRow* without) {
    core::Memory memory = core::unchanged_memory(span_of(default_policy()));
    std::size_t best = 0;
    for (const PolicyRow& row : policies) {
        std::size_t its_rank = rank(pattern_of(row), scopes);
        if (&row == without || is_dropped(row) || its_rank <= best) continue;
        memory = memory_of_row(row);
        best = its_rank;
    }
    for (const PolicyRow& row : policies)
        if (&row != without && is_dropped(row) && rank(pattern_of(row), scopes) > best)
            memory = core::with_past(memory, memory_of_row(row));
    return memory;
}

}  // namespace idem::config
