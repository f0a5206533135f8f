// The work under a grant must see all effects of the attempts before. In READ COMMITTED the work
// takes its snapshot after the grant and sees them. A snapshot that is taken already is asked
// whether it knows them, as ExecUpdate says "could not serialize access" where heap_update has met
// a newer version (TM_Updated) under IsolationUsesXactSnapshot: for each version of the row, and
// for the end of a lease, which leaves no version. That this very transaction has ended a claim, as
// an operator or by its token, tells nothing of the holder's effects: the lease still counts, and
// an unknown attempt has lasted until then.

#include "claim/grant.hpp"

#include "core/time.hpp"

#include "claim/history.hpp"
#include "claim/open_claims.hpp"
#include "claim/sealing.hpp"
#include "claim/token.hpp"
#include "pg/snapshot.hpp"
#include "pg/wait.hpp"
#include "store/attempt.hpp"
#include "store/live_claims.hpp"
#include "store/record_table.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

// What an attempt inherits from the row it goes on with; nothing if it starts afresh.
store::Record inherited(const Answer& answer, TimestampTz now) {
    store::Record record{};
    const store::Record& row = answer.record;
    record.id = row.id;
    record.created_at = now;
    core::Execution execution = answer.decision->execution;
    if (execution == core::Execution::First || execution == core::Execution::Reuse) return record;
    record.attempt = row.attempt;
    record.created_at = row.created_at;
    record.fingerprint = row.fingerprint;
    record.fingerprint_of = row.fingerprint_of;
    record.counted = row.counted;
    record.excluded = row.excluded;
    record.operation = row.operation;
    record.request = row.request;
    record.method = row.method;
    record.path = row.path;
    record.error = row.error;
    record.resolved_by = row.resolved_by;
    record.recovery_point = row.recovery_point;
    record.state = row.state;
    record.sealed_by = row.sealed_by;
    record.salt = row.salt;
    record.expires_at = row.expires_at;
    record.retained_until = row.retained_until;
    return record;
}

void set_request(const Settled& question, store::Record* record) {
    const Question& asked = question.asked;
    if (question.fingerprint != nullptr) {
        record->fingerprint = question.fingerprint;
        record->fingerprint_of =
            question.fingerprint_of | (record->fingerprint_of & store::kForKey);
        record->counted = question.policy.fingerprint_fields;
        record->excluded = question.excluded;
    }
    if (asked.operation != nullptr) record->operation = asked.operation;
    if (!question.policy.values.store_request) return;
    if (asked.request != nullptr) record->request = asked.request;
    if (asked.method != nullptr) record->method = asked.method;
    if (asked.path != nullptr) record->path = asked.path;
}

// How long the answer is replayed, and the key remembered. A later attempt never lets a key be
// forgotten sooner. Without a ttl of its own it has that of the attempt before, unless the times of
// that one are infinite (keep_if_half_way).
void set_memory(const Settled& question, const Answer& answer, TimestampTz now,
                store::Record* record) {
    const core::Policy& policy = question.policy.values;
    std::int64_t ttl = question.ttl;
    TimestampTz before = record->retained_until;
    bool goes_on = record->attempt > 1 && !TIMESTAMP_IS_NOEND(before);
    if (goes_on && !question.asked.ttl && record->expires_at > answer.record.claimed_at)
        ttl = Min(record->expires_at - answer.record.claimed_at, policy.max_ttl);
    record->expires_at = pg::after(now, ttl);
    record->retained_until = pg::after(now, Max(question.retention, ttl));
    if (goes_on) record->retained_until = Max(record->retained_until, before);
}

store::Record new_attempt(const Settled& question, const Answer& answer, TimestampTz now) {
    const core::Policy& policy = question.policy.values;
    store::Record record = inherited(answer, now);
    // The window of a derived key begins with its first attempt.
    bool in_window = store::is_derived(record);
    set_request(question, &record);
    record.status = core::Status::InProgress;
    record.attempt++;
    record.token = new_token(answer.has_record ? answer.record.token : 0);
    record.claimed_at = now;
    if (!in_window) set_memory(question, answer, now, &record);
    record.lease = question.lease;
    record.lease_until = pg::after(now, question.lease);
    record.next_attempt_at = pg::kNoTime;
    record.finished_at = pg::kNoTime;
    record.holder = question.asked.holder;
    // On a distributed table the backend is one of Citus's, which outlasts its clients.
    bool named = question.asked.hold && !store::is_distributed();
    record.backend_pid = named ? MyProcPid : 0;
    record.backend_start = named ? MyStartTimestamp : pg::kNoTime;
    record.body_limit = static_cast<std::int32_t>(policy.max_body_bytes);
    record.omit_large_body = policy.on_large_body == core::OnLargeBody::Omit;
    bool last = policy.max_attempts > 0 && record.attempt >= policy.max_attempts;
    record.if_silent = policy.on_lease_expiry == core::OnLeaseExpiry::Unknown
                           ? core::IfSilent::Unknown
                       : last ? core::IfSilent::Exhausted
                              : core::IfSilent::Takeover;
    return record;
}

// Whether the attempt before was never ended.
bool follows_silence(const Answer& answer) {
    return answer.has_record && answer.record.status == core::Status::InProgress;
}

// The retry has a snapshot that knows the attempt.
[[noreturn]] void raise_unseen_attempt() {
    ereport(
        ERROR,
        (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
         errmsg("could not serialize access due to an earlier attempt with this key"),
         errdetail("The snapshot is older than that attempt's end and may not see its effects."),
         errhint("Roll back and retry the transaction.")));
    pg_unreachable();
}

// Whether the work will see every effect of the attempts before.
enum class Sight { Full, UnseenAttempt, UnseenEffects };

Sight sight_of(const Settled& question, const Answer& answer, TimestampTz now) {
    if (question.fixed == nullptr) return Sight::Full;
    bool was_silent = follows_silence(answer);
    store::Past past = store::past_of(question.id, question.fixed);
    // That of a table whose versions can't be looked at.
    if (was_silent) past.leased_until = Max(past.leased_until, answer.record.lease_until);
    if (!past.known || pg::may_be_pruned_under(question.fixed_since, now))
        return Sight::UnseenAttempt;
    // Until its lease ended the holder of a claim may have committed effects in transactions of its
    // own, of which no version of the row tells. A moment that is yet to come says that the clock
    // has been set back, and proves nothing.
    if (past.leased_until == pg::kNoTime ||
        (question.fixed_since > past.leased_until && question.fixed_since <= now))
        return Sight::Full;
    if (pg::is_as_good_as_new(question.fixed)) return Sight::Full;
    return was_silent ? Sight::UnseenAttempt : Sight::UnseenEffects;
}

void require_sight(const Settled& question, const Answer& answer, TimestampTz now) {
    switch (sight_of(question, answer, now)) {
        case Sight::Full:
            return;
        case Sight::UnseenAttempt:
            raise_unseen_attempt();
        case Sight::UnseenEffects:
            break;
    }
    // The retry has a snapshot that was taken after the lease, or knows the decision.
    ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                    errmsg("could not serialize access due to an earlier attempt with this key"),
                    errdetail("This transaction has ended that attempt, and its snapshot may not "
                              "see all its effects."),
                    errhint("Roll back, end the attempt in a transaction of its own, and retry.")));
}

bool is_transactional(const Settled& question) {
    return question.asked.transactional || question.policy.values.transactional_only;
}

// Of the principal, in a scope whose policy limits them. Other transactions' claims count from
// their commit on, so that no claim waits for another key's.
bool has_room(const Settled& question) {
    std::int64_t most = question.policy.values.max_open_claims;
    if (most == 0 || is_transactional(question) || question.asked.operation != nullptr) return true;
    std::int64_t open = uncounted_claims(question.id);
    open += store::live_claims(question.id, most - open);
    return open < most;
}

void require_room(const Settled& question) {
    if (has_room(question)) return;
    ereport(ERROR,
            (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED), errmsg("too many open claims"),
             errdetail("The policy of this scope has max_open_claims, and the principal has that "
                       "many claims with a lease."),
             errhint("Retry when one of them has ended, or its lease has.")));
}

struct NewClaim {
    const store::Record* record;
    const store::Record* before;
    bool transactional;
    bool written;
};

// In the subtransaction of the wait, if there is one: where time runs out, the claim goes with it.
void add_and_write(void* argument) {
    auto* claim = static_cast<NewClaim*>(argument);
    OpenClaim* open = add_claim(*claim->record, claim->before, claim->transactional);
    claim->written = write_early(open);
    if (!claim->written) drop_claim(open);
}

// The row itself is waited for as long as the caller is ready to wait; the lock of the table was,
// without such a limit, as by any statement. What else a write may wait for, such as a table that
// is being extended or a lock of a trigger's own, is no claim: there it tries again, more
// patiently.
bool add_written(NewClaim* claim, std::int64_t left) {
    for (std::int64_t patience = left; patience < core::kLongestWait;
         patience = Max(patience, core::kMillisecond) * 2) {
        if (pg::wait_at_most(patience, add_and_write, claim)) return claim->written;
        if (store::is_busy(claim->record->id)) return false;
    }
    add_and_write(claim);
    return claim->written;
}

}  // namespace

Hindrance hindrance_of(const Settled& question, TimestampTz now, const Answer& answer) {
    store::lock_for_writing(question.id);
    if (!has_room(question)) return Hindrance::NoRoom;
    bool sees_all = sight_of(question, answer, now) == Sight::Full;
    return sees_all ? Hindrance::None : Hindrance::OldSnapshot;
}

store::Record claimed_record(const Settled& question, TimestampTz now, const Answer& answer) {
    const core::Policy& policy = question.policy.values;
    // A transaction that is waited for here may have changed how rows are written, and the row.
    // From here on only transactions that write rows as we do change it.
    store::lock_for_writing(question.id);
    require_room(question);
    require_sight(question, answer, now);
    if (policy.encrypt) require_key(question.id);
    store::Record record = new_attempt(question, answer, now);
    seal(&record, policy.encrypt);
    return record;
}

bool grant(const Settled& question, TimestampTz now, std::int64_t left, Answer* answer) {
    const core::Policy& policy = question.policy.values;
    store::Record record = claimed_record(question, now, *answer);
    NewClaim claim{&record, answer->has_record ? &answer->record : nullptr,
                   is_transactional(question), false};
    store::reserve(record.id);
    if (policy.keep_history) store::reserve_attempt();
    if (store::bypasses_executor(record.id)) {
        (void)add_claim(record, claim.before, claim.transactional);
    } else {
        if (!add_written(&claim, left)) return false;
        // The row may have waited for a transaction that ignores our lock, or has given it back.
        if (question.fixed != nullptr && !store::past_of(question.id, question.fixed).known)
            raise_unseen_attempt();
    }
    come_first_at_commit();
    if (follows_silence(*answer))
        keep_attempt(policy, answer->record, store::AttemptEnd::TakenOver);
    answer->record = record;
    answer->has_record = true;
    return true;
}

}  // namespace idem::claim
