#include "claim/finish.hpp"

#include "core/backoff.hpp"

#include "claim/held_claim.hpp"
#include "claim/response.hpp"
#include "config/policy.hpp"
#include "pg/errors.hpp"

namespace idem::claim {

namespace {

// Every call on a claim begins alike: no writing where nothing can be written, and the policy of
// the scope decides who may and what holds.
config::ScopePolicy enter(const ClaimRef& ref) {
    PreventCommandIfReadOnly(ref.function);
    PreventCommandDuringRecovery(ref.function);
    return config::policy_for(pg::bytes_of(ref.id.scope));
}

void mark_finished(core::Status status, store::Record* record) {
    record->status = status;
    record->finished_at = GetCurrentTimestamp();
    record->lease_until = pg::kNoTime;
    record->next_attempt_at = pg::kNoTime;
    record->held = false;
    record->error = nullptr;
    record->resolved_by = nullptr;
}

// What a later attempt would need to go on is of no use after a final result.
void drop_progress(store::Record* record) {
    record->recovery_point = nullptr;
    record->state = nullptr;
}

void set_ttl(std::int64_t ttl, store::Record* record) {
    record->expires_at = pg::after(record->claimed_at, ttl);
    record->retained_until = Max(record->retained_until, record->expires_at);
}

double random_fraction() {
    std::uint32_t random = 0;
    (void)pg_strong_random(&random, sizeof(random));
    return random / 4294967296.0;
}

std::int64_t pause_before_retry(const Failure& failure, const core::Policy& policy, int attempt) {
    if (failure.retry_after)
        return *failure.retry_after;
    return core::jittered(core::backoff_ceiling(policy.retry_base, policy.retry_cap, attempt),
                          random_fraction());
}

void mark_failed(const Failure& failure, const core::Policy& policy, store::Record* record) {
    mark_finished(failure.retryable ? core::Status::Retryable : core::Status::Failed, record);
    record->error = failure.error;
    if (failure.retryable)
        record->next_attempt_at = pg::after(
            record->finished_at, pause_before_retry(failure, policy, record->attempt));
    else
        drop_progress(record);
}

TimestampTz prolong(HeldClaim* claim, std::int64_t lease) {
    claim->record.status = core::Status::InProgress;
    claim->record.lease_until = pg::after(GetCurrentTimestamp(), lease);
    save(claim);
    return claim->record.lease_until;
}

}  // namespace

bool complete(const ClaimRef& ref, const Response& response, std::optional<std::int64_t> ttl) {
    config::ScopePolicy policy = enter(ref);
    HeldClaim claim = held_claim(ref);
    if (claim.ended)
        return false;
    mark_finished(core::Status::Completed, &claim.record);
    drop_progress(&claim.record);
    keep_response(response, policy, &claim.record);
    if (ttl)
        set_ttl(*ttl, &claim.record);
    save_ended(&claim);
    return true;
}

bool fail(const ClaimRef& ref, const Response& response, const Failure& failure) {
    config::ScopePolicy policy = enter(ref);
    HeldClaim claim = held_claim(ref);
    if (claim.ended)
        return false;
    mark_failed(failure, policy.values, &claim.record);
    keep_response(response, policy, &claim.record);
    check_size("error", failure.error, policy.values);
    save_ended(&claim);
    return true;
}

bool release(const ClaimRef& ref) {
    (void)enter(ref);
    HeldClaim claim = held_claim(ref);
    if (claim.ended)
        return false;
    withdraw(&claim);
    return true;
}

TimestampTz extend(const ClaimRef& ref, std::optional<std::int64_t> lease) {
    config::ScopePolicy policy = enter(ref);
    HeldClaim claim = held_claim(ref);
    if (claim.ended)
        pg::raise_claim_lost();
    return prolong(&claim, lease.value_or(policy.values.lease));
}

TimestampTz checkpoint(const ClaimRef& ref, text* recovery_point, Jsonb* state,
                       std::optional<std::int64_t> lease) {
    config::ScopePolicy policy = enter(ref);
    check_size("state", state, policy.values);
    HeldClaim claim = held_claim(ref);
    if (claim.ended)
        pg::raise_claim_lost();
    claim.record.recovery_point = recovery_point;
    claim.record.state = state;
    return prolong(&claim, lease.value_or(policy.values.lease));
}

void finish_silently(OpenClaim* claim) {
    HeldClaim held{claim, current_record(claim), false};
    mark_finished(core::Status::Completed, &held.record);
    drop_progress(&held.record);
    save_ended(&held);
}

}  // namespace idem::claim
