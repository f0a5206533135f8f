// Most keys of a batch are new or have been completed: a look under the lock of the key tells
// which. The new ones are written together. Every other key goes the way of idem_once, which waits,
// raises errors, and goes on with earlier attempts.

#include "claim/once_each.hpp"

#include "claim/begin.hpp"
#include "claim/grant.hpp"
#include "claim/holder.hpp"
#include "claim/locks.hpp"
#include "claim/open_claims.hpp"
#include "pg/boundary.hpp"
#include "store/attempt.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

// So many keys are locked at the same time: a written row guards its key.
constexpr int kAtOnce = 100;

// New keys with their locks, whose records are yet to be written.
struct Batch {
    store::Record records[kAtOnce];
    int count;
};

// Whether the key is new; then it is in the batch, and locked. None: idem_once must tell.
std::optional<bool> look_once(const Settled& question, Batch* batch) {
    const store::Identity& id = question.id;
    if (open_claim(id) != nullptr || !try_lock_if_room(id)) return std::nullopt;
    Answer answer{};
    answer.record.id = id;
    store::Look look = store::find(id, &answer.record);
    answer.has_record = look.found;
    TimestampTz now = GetCurrentTimestamp();
    answer.decision = decision_about(look.found ? &answer.record : nullptr, question, now);
    bool is_new =
        answer.decision->execution == core::Execution::First && !TransactionIdIsValid(look.writer);
    if (is_new) {
        answer.record = claimed_record(question, now, answer);
        answer.has_record = true;
        mark_completed(&answer.record);
        batch->records[batch->count++] = answer.record;
    } else {
        unlock(id);
        if (answer.decision->outcome != core::Outcome::Replay) return std::nullopt;
    }
    account_for(answer);
    return is_new;
}

void write(Batch* batch, const core::Policy& policy) {
    if (batch->count == 0) return;
    store::reserve(batch->records[0].id);
    if (policy.keep_history) store::reserve_attempt();
    if (!store::insert_all(batch->records, batch->count)) store::raise_claim_overtaken();
    for (int i = 0; i < batch->count; i++) {
        account_for_completed(policy, batch->records[i]);
        unlock(batch->records[i].id);
    }
    batch->count = 0;
}

}  // namespace

// Where others do not see a row before its commit, the claim goes the usual way: a row that another
// session has inserted meanwhile is waited for there.
void once_each(const Question& question, const store::Identity* ids, int count, bool* is_new) {
    pg::require_writable(question.function);
    Settled settled = settle(question);
    auto* batch = static_cast<Batch*>(palloc(sizeof(Batch)));
    batch->count = 0;
    bool together = store::bypasses_executor(question.id);
    for (int i = 0; i < count; i++) {
        CHECK_FOR_INTERRUPTS();
        settled.id = ids[i];
        std::optional<bool> answer = together ? look_once(settled, batch) : std::nullopt;
        is_new[i] = answer ? *answer : once(settled);
        if (batch->count == kAtOnce) write(batch, settled.policy.values);
    }
    write(batch, settled.policy.values);
}

}  // namespace idem::claim
