#include "claim/ending.hpp"

#include "claim/liveness.hpp"
#include "pg/errors.hpp"

namespace idem::claim {

config::ScopePolicy enter(const char* function, const store::Identity& id) {
    pg::require_writable(function);
    return config::policy_for(pg::bytes_of(id.scope));
}

void mark_ended(core::Status status, store::Record* record) {
    record->status = status;
    record->finished_at = GetCurrentTimestamp();
    record->lease_until = pg::kNoTime;
    record->next_attempt_at = pg::kNoTime;
    name_no_backend(record);
    record->error = nullptr;
    record->resolved_by = nullptr;
    if (status == core::Status::Retryable) return;
    record->recovery_point = nullptr;
    record->state = nullptr;
}

void allow_as_claimed(const store::Record& record, core::Policy* policy) {
    policy->max_body_bytes = Max(policy->max_body_bytes, record.body_limit);
    if (record.omit_large_body) policy->on_large_body = core::OnLargeBody::Omit;
}

void keep_if_undecided(const core::Policy& policy, store::Record* record) {
    if (record->status != core::Status::Retryable) return;
    bool exhausted = policy.max_attempts > 0 && record->attempt >= policy.max_attempts &&
                     record->resolved_by == nullptr;
    if (!exhausted && record->recovery_point == nullptr) return;
    record->expires_at = DT_NOEND;
    record->retained_until = DT_NOEND;
}

void keep_long_enough(TimestampTz end, store::Record* record) {
    std::int64_t ttl = record->expires_at - record->claimed_at;
    std::int64_t retention = record->retained_until - record->claimed_at;
    if (record->expires_at - end >= ttl / 2) return;
    record->expires_at = pg::after(end, ttl);
    record->retained_until = pg::after(end, retention);
}

}  // namespace idem::claim
