#include "claim/grant.hpp"

#include "core/time.hpp"

#include "claim/liveness.hpp"
#include "claim/open_claims.hpp"
#include "claim/records.hpp"
#include "claim/token.hpp"
#include "claim/transaction.hpp"
#include "pg/errors.hpp"
#include "pg/internal.hpp"
#include "pg/snapshot.hpp"
#include "pg/timed_wait.hpp"

namespace idem::claim {

namespace {

// What an attempt inherits from the row it goes on with; nothing if it starts afresh.
store::Record inherited(const Judgement& judgement) {
    store::Record record{};
    const store::Record& row = judgement.answer.record;
    record.id = row.id;
    record.created_at = judgement.now;
    core::Execution claim = judgement.answer.claim;
    if (claim == core::Execution::First || claim == core::Execution::Reuse) return record;
    record.attempt = row.attempt;
    record.created_at = row.created_at;
    record.fingerprint = row.fingerprint;
    record.excluded = row.excluded;
    record.operation = row.operation;
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
    record->retained_until = pg::after(now, asking.retention);
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
    if (asking.fingerprint != nullptr) {
        record.fingerprint = asking.fingerprint;
        record.excluded = asking.excluded;
    }
    if (asking.operation != nullptr) record.operation = asking.operation;
    if (asking.request != nullptr) record.request = asking.request;
    record.holder = asking.holder;
    if (asking.hold)
        name_this_backend(&record);
    else
        name_no_backend(&record);
    record.body_limit = asking.body_limit;
    record.omit_large_body = asking.omit_large_body;
    record.no_takeover = asking.asked.on_lease_expiry == core::OnLeaseExpiry::Unknown;
    return record;
}

// A takeover follows no version of the row but the end of a lease, and until then the holder may
// have committed effects in transactions of their own. A moment that is yet to come says that the
// clock has been set back, and proves nothing.
bool lease_ended_before(const Asking& asking, const Judgement& judgement) {
    return asking.fixed_since > judgement.answer.record.lease_until &&
           asking.fixed_since <= judgement.now;
}

// Whoever is granted a key sees every effect of the attempts before.
void check_snapshot(const Asking& asking, const Judgement& judgement) {
    if (asking.fixed == nullptr) return;
    bool in_time = judgement.answer.claim != core::Execution::Takeover ||
                   lease_ended_before(asking, judgement) || pg::is_as_good_as_new(asking.fixed);
    if (!in_time || pg::may_be_pruned_under(asking.fixed_since, judgement.now) ||
        !records().known_to(asking.fixed, asking.id))
        pg::raise_unseen_attempt();
}

struct NewClaim {
    const store::Record* record;
    const store::Record* before;
    bool written;
};

// In the subtransaction of the wait, if there is one: where time runs out, the claim goes with it.
void add_and_write(void* argument) {
    auto* claim = static_cast<NewClaim*>(argument);
    OpenClaim* open = add_claim(*claim->record, claim->before);
    claim->written = write_early(open);
    if (!claim->written) cancel_claim(open);
}

// The row itself is waited for as long as the caller is ready to wait; the lock of the table was,
// without such a limit, as by any statement. What else a write may wait for, such as a table that
// is being extended or a lock of a trigger's own, is nobody's claim: there it tries again, more
// patiently.
bool add_written(const store::Store& store, NewClaim* claim, std::int64_t left) {
    for (std::int64_t patience = left; patience < core::kLongestWait;
         patience = Max(patience, core::kMillisecond) * 2) {
        if (pg::wait_at_most(patience, add_and_write, claim)) return claim->written;
        if (store.is_busy(claim->record->id)) return false;
    }
    add_and_write(claim);
    return claim->written;
}

}  // namespace

bool grant(const Asking& asking, Judgement* judgement, std::int64_t left) {
    // Whoever is waited for here may have changed how rows are written, and the row; nobody does
    // from here on but who writes rows like us.
    pg::lock_table("record", RowExclusiveLock);
    check_snapshot(asking, *judgement);
    Answer* answer = &judgement->answer;
    store::Record record = new_attempt(asking, *judgement);
    NewClaim claim{&record, answer->has_record ? &answer->record : nullptr, false};
    const store::Store& store = records();
    store.reserve();
    if (store.writes_in_callbacks)
        (void)add_claim(record, claim.before);
    else if (!add_written(store, &claim, left))
        return false;
    come_first_at_commit();
    answer->record = record;
    answer->has_record = true;
    return true;
}

}  // namespace idem::claim
