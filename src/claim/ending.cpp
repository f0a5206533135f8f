#include "claim/ending.hpp"

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
    record->held = false;
    record->error = nullptr;
    record->resolved_by = nullptr;
    if (status == core::Status::Retryable) return;
    record->recovery_point = nullptr;
    record->state = nullptr;
}

void keep_long_enough(TimestampTz end, store::Record* record) {
    std::int64_t ttl = record->expires_at - record->claimed_at;
    std::int64_t retention = record->retained_until - record->claimed_at;
    if (record->expires_at - end >= ttl / 2) return;
    record->expires_at = pg::after(end, ttl);
    record->retained_until = pg::after(end, retention);
}

}  // namespace idem::claim
