#include "claim/judge.hpp"

#include "claim/fingerprint.hpp"
#include "claim/liveness.hpp"
#include "claim/records.hpp"

namespace idem::claim {

namespace {

// Times that are absent never lie ahead.
std::int64_t or_past(TimestampTz time) {
    return time == pg::kNoTime ? 0 : time;
}

// The end of a session says nothing to a fixed snapshot: what the session has committed may be
// newer. There only the lease counts.
bool is_abandoned_early(const store::Record& record, const Asking& asking, TimestampTz now) {
    return asking.fixed == nullptr && now < record.lease_until && holder_is_gone(record);
}

bool same_if_known(const void* a, const void* b) {
    return a == nullptr || b == nullptr || pg::bytes_of(a) == pg::bytes_of(b);
}

bool same_fields(const ArrayType* a, const ArrayType* b) {
    return (a == nullptr) == (b == nullptr) && same_if_known(a, b);
}

// The policy may leave out other fields than it did when the record's fingerprint was taken.
bool same_by_its_rule(const store::Record& record, const Asking& asking) {
    if (asking.hashed == nullptr || same_fields(record.excluded, asking.excluded)) return false;
    return same_if_known(record.fingerprint,
                         fingerprint_of(asking.hashed, nullptr, nullptr, record.excluded));
}

core::Known facts_of(const store::Record& record, const Asking& asking, TimestampTz now) {
    core::Known facts{};
    facts.status = record.status;
    facts.attempt = record.attempt;
    facts.lease_until = or_past(record.lease_until);
    facts.next_attempt_at = or_past(record.next_attempt_at);
    facts.expires_at = record.expires_at;
    facts.retained_until = record.retained_until;
    facts.claimed_at = record.claimed_at;
    facts.released_by_operator = record.resolved_by != nullptr;
    facts.same_fingerprint = same_request(record, asking);
    facts.holder_gone = is_abandoned_early(record, asking, now);
    return facts;
}

// What the row does not say: it follows from the time and the policy.
bool is_unknown(const core::Known& record, const core::Question& asked) {
    return record.status == core::Status::InProgress &&
           (asked.now >= record.lease_until || record.holder_gone) &&
           asked.on_lease_expiry == core::OnLeaseExpiry::Unknown;
}

}  // namespace

bool same_request(const store::Record& record, const Asking& asking) {
    return same_if_known(record.operation, asking.operation) &&
           (same_if_known(record.fingerprint, asking.fingerprint) ||
            same_by_its_rule(record, asking));
}

Judgement judge(const Asking& asking) {
    Judgement result{};
    result.answer.record.id = asking.id;
    store::Sight sight = records().find(asking.id, &result.answer.record);
    result.answer.has_record = sight.found;
    result.writer = sight.writer;
    result.now = GetCurrentTimestamp();
    core::Question asked = asking.asked;
    asked.now = result.now;
    core::Known facts{};
    if (result.answer.has_record) {
        facts = facts_of(result.answer.record, asking, result.now);
        if (result.answer.record.no_takeover) asked.on_lease_expiry = core::OnLeaseExpiry::Unknown;
    }
    core::Decision decision = core::decide(result.answer.has_record ? &facts : nullptr, asked);
    if (result.answer.has_record && is_unknown(facts, asked))
        result.answer.record.status = core::Status::Unknown;
    result.answer.outcome = decision.outcome;
    result.answer.retry_after = decision.retry_after;
    result.answer.claim = decision.execution;
    return result;
}

}  // namespace idem::claim
