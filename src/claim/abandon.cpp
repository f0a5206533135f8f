// The policy decides here, as an operator does with idem_resolve. It allows no attempt beyond
// max_attempts, and needs no role.

#include "claim/abandon.hpp"

#include "claim/history.hpp"
#include "claim/locks.hpp"
#include "claim/open_claims.hpp"
#include "claim/result.hpp"
#include "claim/sealing.hpp"
#include "claim/state.hpp"
#include "claim/token.hpp"
#include "config/policy.hpp"
#include "stats/events.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

using core::OnAbandon;

constexpr const char* kError = "abandoned: the lease expired and no caller took over";

// After its lease no caller takes it over, because max_attempts are used up. It does not become
// unknown either.
bool is_last(const store::Record& record, const core::Policy& policy) {
    return !is_unknown_if_silent(policy, record) &&
           (record.if_silent == core::IfSilent::Exhausted || attempts_used_up(policy, record));
}

// A decision makes the old holder's token invalid, except that the holder may still end an unknown
// record. False: the record can't be sealed, and nothing is decided. The next visit may have its
// key, and other claims do not wait for that.
bool decide(const core::Policy& policy, store::Record* record) {
    // on_abandon sets another status than exhausted.
    bool goes_on = policy.abandon_after != 0 && policy.on_abandon != OnAbandon::Release;
    if (is_last(*record, policy) && !goes_on) {
        mark_silent(policy, record);
        return true;
    }
    if (policy.on_abandon == OnAbandon::Unknown) {
        record->if_silent = core::IfSilent::Unknown;
        return true;
    }
    bool fails = policy.on_abandon == OnAbandon::Fail;
    mark_ended(fails ? core::Status::Failed : core::Status::Retryable, record);
    record->token = new_token(record->token);
    record->error = cstring_to_text(kError);
    if (!fails) record->next_attempt_at = record->finished_at;
    keep_as_fresh(policy, record);
    keep_if_half_way(record);
    return try_seal(record, policy.encrypt);
}

// Under the key's lock. A claim that was in progress when the walk met it may have ended since.
bool abandon_if_due(const store::Identity& id, const core::Policy& policy) {
    store::Record record;
    record.id = id;
    store::Look look = store::find(id, &record);
    if (!look.found || TransactionIdIsValid(look.writer)) return false;
    TimestampTz due = given_up_at(record, policy);
    if (record.status != core::Status::InProgress || due == pg::kNoTime ||
        due > GetCurrentTimestamp() || session_lives(record))
        return false;
    store::Version overdue = store::version_of(record);
    int attempt = record.attempt;
    if (!decide(policy, &record)) return false;
    if (!store::update(record, overdue)) return false;
    bool exhausted = record.status == core::Status::Exhausted;
    if (exhausted)
        keep_attempt(policy, record, store::AttemptEnd::Silent);
    else if (record.status != core::Status::InProgress)
        keep_ended_attempt(policy, record);
    std::string_view became =
        exhausted
            ? core::entry_of(record.status).word
            : core::word_at(static_cast<std::int64_t>(policy.on_abandon), core::kOnAbandonWords);
    stats::account_for_abandoned({became, pg::bytes_of(id.scope), pg::bytes_of(id.principal),
                                  pg::bytes_of(id.key), attempt});
    return true;
}

}  // namespace

TimestampTz given_up_at(const store::Record& record, const core::Policy& policy) {
    // A released attempt has no lease: its holder has come back.
    if (record.finished_at != pg::kNoTime || record.lease_until == pg::kNoTime) return pg::kNoTime;
    if (policy.abandon_after == 0)
        return is_last(record, policy) ? record.lease_until : pg::kNoTime;
    if (policy.on_abandon == OnAbandon::Unknown && record.if_silent == core::IfSilent::Unknown)
        return pg::kNoTime;
    return pg::after(record.lease_until, policy.abandon_after);
}

Abandoned abandon(store::WalkPosition* from, int limit) {
    std::optional<std::int64_t> shortest = config::shortest_abandonment();
    if (!shortest) {
        *from = store::WalkPosition{};
        return {0, true};
    }
    TimestampTz until = GetCurrentTimestamp() - *shortest;
    store::Overdue found = store::find_overdue(from, until, limit);
    Abandoned result{0, found.at_end};
    for (int i = 0; i < found.count && result.claims < limit; i++) {
        CHECK_FOR_INTERRUPTS();
        const store::Identity& id = found.claims[i];
        core::Policy policy;
        if (!config::policy_ignoring_role(pg::bytes_of(id.scope), &policy)) continue;
        if (open_claim(id) != nullptr || !try_lock(id)) continue;
        bool abandoned = abandon_if_due(id, policy);
        // As after each end of a claim: where the row guards the key, the lock is not needed.
        if (!abandoned || store::bypasses_executor(id)) unlock(id);
        if (abandoned) result.claims++;
    }
    return result;
}

TimestampTz next_abandonment() {
    if (!config::shortest_abandonment()) return DT_NOEND;
    store::FirstLeases leases = store::first_leases();
    TimestampTz next = leases.complete ? DT_NOEND : DT_NOBEGIN;
    for (int i = 0; i < leases.count; i++) {
        const store::FirstLease& lease = leases.items[i];
        core::Policy policy;
        if (!config::policy_ignoring_role(pg::bytes_of(lease.scope), &policy)) continue;
        store::Record record;
        record.finished_at = pg::kNoTime;
        record.attempt = 0;
        record.if_silent = lease.if_silent;
        record.lease_until = lease.lease_until;
        TimestampTz due = given_up_at(record, policy);
        // The current policy may never abandon it.
        if (due != pg::kNoTime) next = Min(next, due);
    }
    return next;
}

}  // namespace idem::claim
