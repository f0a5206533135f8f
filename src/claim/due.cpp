// Each record is claimed as begin() claims it: under the lock of its key, after a look under that
// lock, and by the same decision. Only the lock is not waited for, and a reason to refuse passes
// the record over. So workers side by side get different records, as with FOR UPDATE SKIP LOCKED.

#include "claim/due.hpp"

#include "claim/begin.hpp"
#include "claim/grant.hpp"
#include "claim/locks.hpp"
#include "claim/open_claims.hpp"
#include "claim/result.hpp"
#include "claim/sealing.hpp"
#include "pg/boundary.hpp"
#include "stats/counters.hpp"
#include "store/due.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

// A batch has room for the records that other workers are claiming at the same moment.
constexpr int kSmallestBatch = 100;

bool is_transactional(std::string_view scope) {
    core::Policy policy;
    return config::policy_ignoring_role(scope, &policy) && policy.transactional_only;
}

// Those that are open to the caller. A claim with a lease outlasts its transaction, and COMMIT would
// refuse it, with all others of the call, where a policy says transactional_only.
store::Scopes scopes_for(const DueQuestion& asked) {
    store::Scopes scopes = store::active_scopes(pg::bytes_of(asked.pattern));
    int open = 0;
    bool passed_over = false;
    for (int i = 0; i < scopes.count; i++) {
        std::string_view scope = pg::bytes_of(scopes.names[i]);
        if (config::is_closed(config::closure_of(scope))) continue;
        if (asked.lease && is_transactional(scope))
            passed_over = true;
        else
            scopes.names[open++] = scopes.names[i];
    }
    scopes.count = open;
    if (passed_over)
        ereport(NOTICE, (errmsg("scopes with transactional_only are passed over"),
                         errdetail("A claim with a lease outlasts its transaction."),
                         errhint("Omit lease, and end the claims before COMMIT.")));
    return scopes;
}

Question question_of(const DueQuestion& asked, const store::Identity& id) {
    Question question{};
    question.function = "idem_claim_due()";
    question.id = id;
    question.without_request = true;
    question.lease = asked.lease;
    question.holder = asked.holder;
    return question;
}

bool opens(store::Record* record, const core::Policy& policy) {
    if (why_closed(record) == nullptr && (!policy.encrypt || why_no_keys() == nullptr)) return true;
    stats::count(pg::bytes_of(record->id.scope), core::Counter::EncryptionErrors);
    return false;
}

// Under the key's lock. False: it is not granted, and the lock is not needed.
bool grant_if_due(const DueQuestion& asked, const store::Identity& id, Answer* answer) {
    std::optional<config::ScopePolicy> policy = config::policy_if_open(pg::bytes_of(id.scope));
    if (!policy || (asked.lease && policy->values.transactional_only)) return false;
    // A record from before the policy required a principal.
    if (policy->values.principal_required && pg::bytes_of(id.principal).empty()) return false;
    Question question = question_of(asked, id);
    Settled settled = settle(question);
    store::Record* record = &answer->record;
    record->id = id;
    store::Look look = store::find(id, record);
    if (!look.found || TransactionIdIsValid(look.writer)) return false;
    TimestampTz now = GetCurrentTimestamp();
    answer->has_record = true;
    answer->decision = decision_about(record, settled, now);
    core::Execution execution = answer->decision->execution;
    if (execution != core::Execution::Retry && execution != core::Execution::Takeover) return false;
    return opens(record, settled.policy.values) && may_be_granted(settled, now, *answer) &&
           grant(settled, now, 0, answer);
}

}  // namespace

void claim_due(const DueQuestion& asked, void (*take)(const store::Record&, void*),
               void* argument) {
    pg::require_writable("idem_claim_due()");
    store::Scopes scopes = scopes_for(asked);
    TimestampTz now = GetCurrentTimestamp();
    TimestampTz after = DT_NOBEGIN;
    int batch = Max(2 * asked.most, kSmallestBatch);
    int granted = 0;
    MemoryContext each =
        AllocSetContextCreate(CurrentMemoryContext, "idempotency claim", ALLOCSET_DEFAULT_SIZES);
    for (bool at_end = scopes.count == 0; !at_end && granted < asked.most;) {
        store::DueRecords due = store::due_records(scopes, after, now, batch);
        at_end = due.count < batch;
        for (int i = 0; i < due.count && granted < asked.most; i++) {
            CHECK_FOR_INTERRUPTS();
            const store::Identity& id = due.items[i].id;
            after = due.items[i].since;
            if (open_claim(id) != nullptr || !try_lock_if_room(id)) continue;
            MemoryContext outer = MemoryContextSwitchTo(each);
            Answer answer{};
            if (grant_if_due(asked, id, &answer)) {
                account_for(answer);
                take(answer.record, argument);
                granted++;
            } else {
                unlock(id);
            }
            MemoryContextSwitchTo(outer);
            MemoryContextReset(each);
        }
    }
    MemoryContextDelete(each);
}

TimestampTz due_at(const store::Record& record, const core::Policy& policy) {
    bool used_up = attempts_used_up(policy, record);
    if (record.status == core::Status::Retryable) {
        bool allowed = !used_up || record.resolved_by != nullptr;
        return allowed && record.next_attempt_at < record.expires_at ? record.next_attempt_at
                                                                     : pg::kNoTime;
    }
    bool may_be_taken_over = record.status == core::Status::InProgress && !used_up &&
                             record.if_silent == core::IfSilent::Takeover &&
                             policy.on_lease_expiry != core::OnLeaseExpiry::Unknown;
    return may_be_taken_over ? record.lease_until : pg::kNoTime;
}

}  // namespace idem::claim
