#include "claim/finish.hpp"

#include "core/time.hpp"

#include "claim/account.hpp"
#include "claim/ending.hpp"
#include "claim/held_claim.hpp"
#include "claim/response.hpp"
#include "pg/errors.hpp"

namespace idem::claim {

namespace {

void set_ttl(std::int64_t ttl, store::Record* record) {
    record->expires_at = pg::after(record->claimed_at, ttl);
    record->retained_until = Max(record->retained_until, record->expires_at);
}

std::int64_t pause_before_retry(const Failure& failure, const core::Policy& policy, int attempt) {
    if (failure.retry_after) return *failure.retry_after;
    return core::jittered(core::backoff_ceiling(policy.retry_base, policy.retry_cap, attempt),
                          pg_prng_double(&pg_global_prng_state));
}

void mark_failed(const Failure& failure, const core::Policy& policy, store::Record* record) {
    mark_ended(failure.retryable ? core::Status::Retryable : core::Status::Failed, record);
    record->error = clipped_error(failure.error);
    if (failure.retryable)
        record->next_attempt_at =
            pg::after(record->finished_at, pause_before_retry(failure, policy, record->attempt));
    keep_long_enough(failure.retryable ? record->next_attempt_at : record->finished_at, record);
    keep_if_undecided(policy, record);
}

void mark_completed(std::optional<std::int64_t> ttl, store::Record* record) {
    mark_ended(core::Status::Completed, record);
    if (ttl) set_ttl(*ttl, record);
    keep_long_enough(record->finished_at, record);
}

// A lease that was given becomes the claim's own; without one, the claim's own counts again.
TimestampTz prolong(HeldClaim* claim, std::optional<std::int64_t> lease) {
    store::Record* record = &claim->record;
    record->lease = lease.value_or(record->lease);
    record->lease_until = pg::after(GetCurrentTimestamp(), record->lease);
    save(claim);
    return record->lease_until;
}

// The claim, to be ended. What idem_execute runs must not end the claim that it is run for: its
// effects would stay, and the next caller would run it again.
HeldClaim claim_to_end(const ClaimRef& ref) {
    HeldClaim claim = held_claim(ref);
    if (claim.open != nullptr && claim.open->operated) pg::raise_own_operation();
    return claim;
}

}  // namespace

bool complete(const ClaimRef& ref, const Response& response, std::optional<std::int64_t> ttl) {
    config::ScopePolicy policy = enter(ref.function, ref.id);
    HeldClaim claim = claim_to_end(ref);
    if (claim.ended) return false;
    mark_completed(ttl, &claim.record);
    allow_as_claimed(claim.record, &policy.values);
    keep_response(response, policy, &claim.record);
    save_ended(&claim);
    account_for_result(claim.record);
    return true;
}

bool fail(const ClaimRef& ref, const Response& response, const Failure& failure) {
    config::ScopePolicy policy = enter(ref.function, ref.id);
    HeldClaim claim = claim_to_end(ref);
    if (claim.ended) return false;
    mark_failed(failure, policy.values, &claim.record);
    allow_as_claimed(claim.record, &policy.values);
    keep_response(response, policy, &claim.record);
    save_ended(&claim);
    account_for_result(claim.record);
    return true;
}

bool release(const ClaimRef& ref) {
    config::ScopePolicy policy = enter(ref.function, ref.id);
    HeldClaim claim = claim_to_end(ref);
    if (claim.ended) return false;
    withdraw(policy.values, &claim);
    return true;
}

TimestampTz extend(const ClaimRef& ref, std::optional<std::int64_t> lease) {
    (void)enter(ref.function, ref.id);
    HeldClaim claim = held_claim(ref);
    if (claim.ended) pg::raise_claim_ended();
    return prolong(&claim, lease);
}

TimestampTz checkpoint(const ClaimRef& ref, text* recovery_point, Jsonb* state,
                       std::optional<std::int64_t> lease) {
    config::ScopePolicy policy = enter(ref.function, ref.id);
    HeldClaim claim = held_claim(ref);
    if (claim.ended) pg::raise_claim_ended();
    allow_as_claimed(claim.record, &policy.values);
    check_size("state", state, policy.values);
    claim.record.recovery_point = recovery_point;
    claim.record.state = state;
    return prolong(&claim, lease);
}

void finish_silently(OpenClaim* claim) {
    HeldClaim held{claim, current_record(claim), false};
    mark_completed(std::nullopt, &held.record);
    save_ended(&held);
    account_for_result(held.record);
}

}  // namespace idem::claim
