#include "claim/grant.hpp"

#include "core/token.hpp"

#include "claim/liveness.hpp"
#include "claim/open_claims.hpp"

namespace idem::claim {

namespace {

// What an attempt inherits from the row it goes on with; nothing if it starts afresh.
store::Record inherited(const Judgement& judgement) {
    store::Record record{};
    const store::Record& row = judgement.answer.record;
    record.id = row.id;
    record.created_at = judgement.now;
    core::Claim claim = judgement.answer.claim;
    if (claim == core::Claim::First || claim == core::Claim::Reuse) return record;
    record.attempt = row.attempt;
    record.created_at = row.created_at;
    record.fingerprint = row.fingerprint;
    record.request = row.request;
    record.error = row.error;
    record.resolved_by = row.resolved_by;
    record.recovery_point = row.recovery_point;
    record.state = row.state;
    return record;
}

void set_times(const Asking& asking, TimestampTz now, store::Record* record) {
    record->claimed_at = now;
    record->expires_at = pg::after(now, asking.ttl);
    record->retained_until = pg::after(now, asking.asked.retention);
    record->lease = asking.lease;
    record->lease_until = pg::after(now, asking.lease);
    record->next_attempt_at = pg::kNoTime;
    record->finished_at = pg::kNoTime;
}

store::Record new_attempt(const Asking& asking, const Judgement& judgement) {
    store::Record record = inherited(judgement);
    record.status = core::Status::InProgress;
    record.attempt++;
    record.token = new_token(judgement.answer.has_record ? judgement.answer.record.token : 0);
    set_times(asking, judgement.now, &record);
    if (asking.fingerprint != nullptr) record.fingerprint = asking.fingerprint;
    if (asking.request != nullptr) record.request = asking.request;
    record.holder = asking.holder;
    record.no_takeover = asking.asked.on_lease_expiry == core::OnLeaseExpiry::Unknown;
    return record;
}

}  // namespace

std::int64_t new_token(std::int64_t previous) {
    std::uint32_t random = pg_prng_uint32(&pg_global_prng_state);
    std::int64_t millis = (GetCurrentTimestamp() + pg::kUnixEpochShift) / 1000;
    return core::next_token(millis, random, previous);
}

void grant(const Asking& asking, Judgement* judgement) {
    Answer* answer = &judgement->answer;
    store::Version replaced =
        answer->has_record ? store::version_of(answer->record) : store::Version{};
    store::Record record = new_attempt(asking, *judgement);
    record.held = asking.hold && hold(record.id, record.token);
    (void)add_claim(record, replaced);
    answer->record = record;
    answer->has_record = true;
}

}  // namespace idem::claim
