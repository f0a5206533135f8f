// An operator does to a record what its holder would do, without the holder's token and under the
// key's lock; who only looks takes none. An own open claim is refused: its record is not written
// yet, so that there would be two truths of one key in one transaction.

#include "claim/operator.hpp"

#include "core/outcome.hpp"

#include "claim/audit.hpp"
#include "claim/history.hpp"
#include "claim/locks.hpp"
#include "claim/sealing.hpp"
#include "claim/state.hpp"
#include "claim/token.hpp"
#include "claim/waiters.hpp"
#include "pg/boundary.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

constexpr std::string_view kForget = "forget";

config::ScopePolicy enter_as_operator(const ClaimRef& ref) {
    if (open_claim(ref.id) != nullptr) raise_own_claim_open();
    return enter(ref);
}

// A policy may want to know why, of each decision about a record.
void require_reason(const config::ScopePolicy& policy, const text* reason) {
    if (!policy.values.reason_required || says_why(reason)) return;
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("reason is required"),
                    errdetail("The policy of this scope requires it."),
                    errhint("Pass reason: it is kept in idempotency.audit.")));
}

bool runs_again(core::Resolution resolution) {
    return core::entry_of(resolution).status == core::Status::Retryable;
}

// Whether the decision is one for such a record.
bool is_for(core::Resolution resolution, core::Status status) {
    if (resolution == core::Resolution::Reopen)
        return status == core::Status::Failed || status == core::Status::Exhausted;
    return status != core::Status::Completed && status != core::Status::Failed;
}

// A record that is being decided, and what it was.
struct Ruled {
    config::ScopePolicy policy;
    store::Version unresolved;
    Jsonb* before;
    bool attempt_ends;
    bool cut_off;  // what ran is run again, beside a holder that may live
};

// Puts all but the answer into the record that was found, under its lock. Nothing is written yet.
// The old holder's token dies, and the record says who decided. What is run again keeps its last
// error, unless another one is given.
Ruled mark_ruled(const Resolution& resolution, const config::ScopePolicy& policy,
                 store::Record* record) {
    bool ends =
        record->status == core::Status::InProgress || record->status == core::Status::Unknown;
    bool again = runs_again(resolution.action);
    Ruled ruled{policy, store::version_of(*record), state_of(*record), ends,
                again && claim_lives(*record)};
    store::Kept<text> last_error = record->error;
    mark_ended(core::entry_of(resolution.action).status, record);
    record->token = new_token(record->token);
    record->error = clipped_error(resolution.error);
    if (again && resolution.error == nullptr) record->error = last_error;
    record->resolved_by = cstring_to_text(GetUserNameFromId(GetSessionUserId(), false));
    if (again) record->next_attempt_at = record->finished_at;
    keep_as_fresh(policy.values, record);
    keep_if_half_way(record);
    allow_as_claimed(*record, &ruled.policy.values);
    return ruled;
}

// With its answer, and sealed.
void write_ruled(const Resolution& resolution, const Ruled& ruled, const store::Record& record) {
    if (!store::update(record, ruled.unresolved)) store::raise_claim_overtaken();
    wake_waiters_at_commit(record.id);
    if (ruled.cut_off)
        keep_attempt(ruled.policy.values, record, store::AttemptEnd::CutOff);
    else if (ruled.attempt_ends)
        keep_ended_attempt(ruled.policy.values, record);
    Audited audited{};
    audited.action = core::entry_of(resolution.action).word;
    audited.id = &record.id;
    audited.before = ruled.before;
    audited.after = state_of(record);
    audited.reason = resolution.reason;
    audit(audited);
}

// Of one of many, which the others are not to suffer from.
Verdict rule_if_possible(const Resolution& resolution, const config::ScopePolicy& policy,
                         store::Record* record) {
    Ruled ruled = mark_ruled(resolution, policy, record);
    if (!fits(resolution.response, ruled.policy)) return Verdict::TooLarge;
    keep_response(resolution.response, ruled.policy, record);
    if (!try_seal(record, ruled.policy.values.encrypt)) return Verdict::NoKey;
    write_ruled(resolution, ruled, *record);
    return Verdict::Done;
}

// What an operator forgets, whatever is kept beside the record. False if the record has changed.
bool remove_for_good(const store::Record& record, const text* reason, bool erase) {
    if (!store::remove(record.id, store::version_of(record))) return false;
    (void)store::remove_attempts(record.id);
    Audited audited{};
    audited.action = kForget;
    audited.id = &record.id;
    audited.before = state_of(record);
    audited.reason = reason;
    audited.anonymous = erase;
    audit(audited);
    return true;
}

// Takes the key's lock if that is to be had, and looks. `Done`: the record stands still, and the
// lock is kept. A transaction that has the lock or has written the row is at work on the key, as is
// the holder of a claim that lives.
template <typename Wanted>
Verdict look_at_idle(const store::Identity& id, store::Record* record, Wanted is_wanted) {
    if (open_claim(id) != nullptr || !try_lock(id)) return Verdict::Running;
    store::Look look = store::find(id, record);
    Verdict settled = Verdict::Done;
    if (TransactionIdIsValid(look.writer))
        settled = Verdict::Running;
    else if (!look.found || !is_wanted(*record))
        settled = Verdict::Skipped;
    else if (claim_lives(*record))
        settled = Verdict::Running;
    if (settled != Verdict::Done) unlock(id);
    return settled;
}

// Of one of many.
std::optional<config::ScopePolicy> enter_if_open(const ClaimRef& ref) {
    pg::require_writable(ref.function);
    return config::policy_if_open(pg::bytes_of(ref.id.scope));
}

// Where the row guards its key by itself, a batch need not keep a lock for each of its keys.
void unlock_written(const store::Identity& id) {
    if (store::bypasses_executor(id)) unlock(id);
}

const char* holder_of(const store::Record& record) {
    if (record.holder.plain != nullptr)
        return psprintf("\"%s\"", text_to_cstring(record.holder.plain));
    if (record.backend_pid != 0) return psprintf("the backend %d", record.backend_pid);
    return record.holder.sealed != nullptr ? "encrypted" : "not named";
}

// Its holder would go on, and the next caller would execute beside it.
[[noreturn]] void raise_running(const store::Record& record) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("the key is being executed"),
                    errdetail("Its holder is %s. The lease ends at %s.", holder_of(record),
                              timestamptz_to_str(record.lease_until)),
                    errhint("Wait for the end of the lease. If the holder has certainly stopped, "
                            "pass even_if_running => true.")));
    pg_unreachable();
}

}  // namespace

bool says_why(const text* reason) {
    return reason != nullptr &&
           pg::bytes_of(reason).find_first_not_of(' ') != std::string_view::npos;
}

void resolve(const ClaimRef& ref, const Resolution& resolution) {
    config::ScopePolicy policy = enter_as_operator(ref);
    require_reason(policy, resolution.reason);
    store::Record record;
    if (!lock_and_find(ref.id, &record)) raise_no_claim();
    if (resolution.action == core::Resolution::Release && !resolution.even_if_running &&
        claim_lives(record))
        raise_running(record);
    core::Status status = status_now(record);
    if (!is_for(resolution.action, status)) {
        bool reopens = resolution.action == core::Resolution::Reopen;
        const char* word = text_to_cstring(pg::make_text(core::entry_of(status).word));
        ereport(
            ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             reopens ? errmsg("the record of this key is %s", word)
                     : errmsg("the record of this key is already %s", word),
             reopens ? errdetail("Only a failed or exhausted record can be reopened.")
                     : errdetail("Clients may have this result already, so it cannot be changed."),
             reopens ? errhint("Use action \"release\" for a record that is not final.")
                     : errhint("Use action \"reopen\" to execute a failed record again, or "
                               "idem_forget to remove the record.")));
    }
    Ruled ruled = mark_ruled(resolution, policy, &record);
    // What runs again has no response: that of an earlier failure goes.
    keep_response(resolution.response, ruled.policy, &record);
    seal(&record, ruled.policy.values.encrypt);
    write_ruled(resolution, ruled, record);
}

Verdict resolve_idle(const ClaimRef& ref, const Resolution& resolution, const ExpectedState& seen) {
    std::optional<config::ScopePolicy> policy = enter_if_open(ref);
    if (!policy) return Verdict::Closed;
    store::Record record;
    Verdict settled = look_at_idle(ref.id, &record, [&](const store::Record& found) {
        core::Status status = status_now(found);
        if (!is_for(resolution.action, status)) return false;
        if (seen.claimed_at && *seen.claimed_at != found.claimed_at) return false;
        if (seen.status && *seen.status != status) return false;
        // A second call for many records means those that are left.
        bool released = runs_again(resolution.action) && found.resolved_by != nullptr &&
                        found.status == core::Status::Retryable;
        return !released;
    });
    if (settled != Verdict::Done) return settled;
    require_reason(*policy, resolution.reason);
    settled = rule_if_possible(resolution, *policy, &record);
    if (settled == Verdict::Done)
        unlock_written(ref.id);
    else
        unlock(ref.id);
    return settled;
}

bool forget(const ClaimRef& ref, const text* reason) {
    require_reason(enter_as_operator(ref), reason);
    store::Record record;
    while (lock_and_find(ref.id, &record)) {
        if (claim_lives(record))
            ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("the key is being executed"),
                            errdetail("The lease of its claim has not expired."),
                            errhint("Wait for it, or end it with idem_resolve.")));
        if (remove_for_good(record, reason, false)) return true;
        // A session that ignores our lock has changed it since: what it says now counts.
        unlock(ref.id);
        CHECK_FOR_INTERRUPTS();
    }
    unlock(ref.id);
    return false;
}

Verdict erase_idle(const ClaimRef& ref, const text* reason) {
    std::optional<config::ScopePolicy> policy = enter_if_open(ref);
    if (!policy) return Verdict::Closed;
    store::Record record;
    Verdict settled = look_at_idle(ref.id, &record, [](const store::Record&) { return true; });
    if (settled != Verdict::Done) return settled;
    require_reason(*policy, reason);
    bool removed = remove_for_good(record, reason, true);
    unlock_written(ref.id);
    return removed ? Verdict::Done : Verdict::Running;
}

}  // namespace idem::claim
