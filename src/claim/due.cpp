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
#include "store/store.hpp"

namespace idem::claim {

namespace {

// A batch has room for the records that other workers are claiming at the same moment. Where much
// is passed over, the next ones are larger.
constexpr int kSmallestBatch = 100;
constexpr int kLargestBatch = 10000;

// Principals that have as many claims in a scope as its policy allows. None of their records is
// looked at again in this call: they may be many, and the oldest.
struct FullUp {
    HTAB* hashes;
    text* no_key;
};

FullUp none_full() {
    HASHCTL control{};
    control.keysize = control.entrysize = sizeof(std::uint64_t);
    control.hcxt = CurrentMemoryContext;
    return {
        hash_create("idempotency principals", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT),
        pg::make_text("")};
}

// With the secret seed of identities.
std::uint64_t hash_of_principal(const FullUp& full, const store::Identity& id) {
    return store::make_identity(id.scope, id.principal, full.no_key).hash;
}

bool is_full(const FullUp& full, const store::Identity& id) {
    if (hash_get_num_entries(full.hashes) == 0) return false;
    std::uint64_t hash = hash_of_principal(full, id);
    return hash_search(full.hashes, &hash, HASH_FIND, nullptr) != nullptr;
}

void note_full(const FullUp& full, const store::Identity& id) {
    std::uint64_t hash = hash_of_principal(full, id);
    (void)hash_search(full.hashes, &hash, HASH_ENTER, nullptr);
}

bool is_transactional(std::string_view scope) {
    core::Policy policy;
    return config::policy_ignoring_role(scope, &policy) && policy.transactional_only;
}

// A call that finds nothing says why, but not each poll of a worker.
void tell_passed_over(const store::Scopes& scopes, TimestampTz now) {
    if (scopes.count == 0 || store::due_records(scopes, DT_NOBEGIN, now, 1).count == 0) return;
    ereport(NOTICE, (errmsg("scopes with transactional_only are passed over"),
                     errdetail("A claim with a lease outlasts its transaction."),
                     errhint("Omit lease, and end the claims before COMMIT.")));
}

// Those that are open to the caller. A claim with a lease outlasts its transaction, and COMMIT
// would refuse it, with all others of the call, where a policy says transactional_only.
store::Scopes scopes_for(const DueQuestion& asked, TimestampTz now) {
    store::Scopes scopes = store::active_scopes(pg::bytes_of(asked.pattern));
    store::Scopes passed_over{
        static_cast<text**>(palloc(sizeof(text*) * (static_cast<std::size_t>(scopes.count) + 1))),
        0};
    int open = 0;
    for (int i = 0; i < scopes.count; i++) {
        text* name = scopes.names[i];
        std::string_view scope = pg::bytes_of(name);
        if (config::is_closed(config::closure_of(scope))) continue;
        if (asked.lease && is_transactional(scope))
            passed_over.names[passed_over.count++] = name;
        else
            scopes.names[open++] = name;
    }
    scopes.count = open;
    tell_passed_over(passed_over, now);
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

// Whether the record that was found is due, and opens.
bool is_due(const Settled& settled, Answer* answer, TimestampTz now) {
    answer->has_record = true;
    answer->decision = decision_about(&answer->record, settled, now);
    core::Execution execution = answer->decision->execution;
    return (execution == core::Execution::Retry || execution == core::Execution::Takeover) &&
           opens(&answer->record, settled.policy.values);
}

// Under the key's lock. False: it is not granted, and the lock is not needed.
bool grant_if_due(const DueQuestion& asked, const store::Identity& id, const FullUp& full,
                  Answer* answer) {
    std::optional<config::ScopePolicy> policy = config::policy_if_open(pg::bytes_of(id.scope));
    if (!policy || (asked.lease && policy->values.transactional_only)) return false;
    // A record from before the policy required a principal.
    if (policy->values.principal_required && pg::bytes_of(id.principal).empty()) return false;
    Question question = question_of(asked, id);
    Settled settled = settle(question);
    answer->record.id = id;
    store::Look look = store::find(id, &answer->record);
    if (!look.found || TransactionIdIsValid(look.writer)) return false;
    TimestampTz now = GetCurrentTimestamp();
    if (!is_due(settled, answer, now)) return false;
    Hindrance hindrance = hindrance_of(settled, now, *answer);
    if (hindrance == Hindrance::NoRoom) note_full(full, id);
    if (hindrance != Hindrance::None) return false;
    // A claim that another session commits now counts for the next record: grant() would refuse it
    // by an error, and with it all that the call has claimed.
    settled.policy.values.max_open_claims = 0;
    return grant(settled, now, 0, answer);
}

// Whether the record was claimed, and taken.
bool claim_if_due(const DueQuestion& asked, const store::Identity& id, const FullUp& full,
                  void (*take)(const store::Record&, void*), void* argument) {
    if (is_full(full, id) || open_claim(id) != nullptr || !try_lock_if_room(id)) return false;
    Answer answer{};
    if (!grant_if_due(asked, id, full, &answer)) {
        unlock(id);
        return false;
    }
    account_for(answer);
    take(answer.record, argument);
    return true;
}

// The policy of now may allow fewer attempts than that of the claim, or forbid the takeover. A row
// that is invalid closes its scope until it is mended: that records wait is to be seen.
bool may_be_granted(const store::DueGroup& group, TimestampTz now) {
    core::Policy policy;
    if (!config::policy_ignoring_role(pg::bytes_of(group.scope), &policy)) return true;
    store::Record record{};
    record.status = group.status;
    record.attempt = group.attempt;
    record.if_silent = core::IfSilent::Takeover;
    record.resolved_by = group.resolved ? group.scope : nullptr;
    record.next_attempt_at = record.lease_until = group.oldest;
    record.expires_at = DT_NOEND;
    return due_at(record, policy, now) != pg::kNoTime;
}

}  // namespace

void claim_due(const DueQuestion& asked, void (*take)(const store::Record&, void*),
               void* argument) {
    pg::require_writable("idem_claim_due()");
    TimestampTz now = GetCurrentTimestamp();
    store::Scopes scopes = scopes_for(asked, now);
    FullUp full = none_full();
    TimestampTz after = DT_NOBEGIN;
    int batch = Max(2 * asked.most, kSmallestBatch);
    int granted = 0;
    MemoryContext outer = CurrentMemoryContext;
    MemoryContext all = AllocSetContextCreate(outer, "idempotency batch", ALLOCSET_DEFAULT_SIZES);
    MemoryContext each = AllocSetContextCreate(outer, "idempotency claim", ALLOCSET_DEFAULT_SIZES);
    for (bool at_end = scopes.count == 0; !at_end && granted < asked.most;) {
        MemoryContextReset(all);
        MemoryContextSwitchTo(all);
        store::DueRecords due = store::due_records(scopes, after, now, batch);
        at_end = due.count < batch;
        batch = Min(2 * batch, kLargestBatch);
        MemoryContextSwitchTo(each);
        for (int i = 0; i < due.count && granted < asked.most; i++) {
            CHECK_FOR_INTERRUPTS();
            after = due.items[i].since;
            if (claim_if_due(asked, due.items[i].id, full, take, argument)) granted++;
            MemoryContextReset(each);
        }
    }
    MemoryContextSwitchTo(outer);
    MemoryContextDelete(each);
    MemoryContextDelete(all);
}

DueOfScope* due_by_scope(Oid table, TimestampTz now, int* count) {
    int groups;
    const store::DueGroup* group = store::due_groups(table, now, &groups);
    auto* found = static_cast<DueOfScope*>(
        palloc(sizeof(DueOfScope) * (static_cast<std::size_t>(groups) + 1)));
    *count = 0;
    for (int i = 0; i < groups; i++) {
        if (!may_be_granted(group[i], now)) continue;
        DueOfScope* last = *count > 0 ? &found[*count - 1] : nullptr;
        if (last == nullptr || pg::bytes_of(last->scope) != pg::bytes_of(group[i].scope)) {
            found[(*count)++] = {group[i].scope, group[i].records, group[i].oldest};
            continue;
        }
        last->records += group[i].records;
        last->oldest = Min(last->oldest, group[i].oldest);
    }
    return found;
}

// After its window a derived key stands for another request, and an older claim is not taken over.
TimestampTz due_at(const store::Record& record, const core::Policy& policy, TimestampTz now) {
    bool used_up = attempts_used_up(policy, record);
    auto before = [now](TimestampTz end, TimestampTz due) {
        return Max(due, now) < end ? due : pg::kNoTime;
    };
    if (record.status == core::Status::Retryable) {
        bool allowed = !used_up || record.resolved_by != nullptr;
        return allowed ? before(record.expires_at, record.next_attempt_at) : pg::kNoTime;
    }
    bool may_be_taken_over = record.status == core::Status::InProgress && !used_up &&
                             record.if_silent == core::IfSilent::Takeover &&
                             policy.on_lease_expiry != core::OnLeaseExpiry::Unknown;
    TimestampTz end = store::is_derived(record) ? record.retained_until : DT_NOEND;
    return may_be_taken_over ? before(end, record.lease_until) : pg::kNoTime;
}

}  // namespace idem::claim
