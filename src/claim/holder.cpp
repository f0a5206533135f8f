// The two kinds of claim, an open one of this transaction and a committed one that the token
// proves, differ in how they are found and written, and in nothing that is done to them.

#include "claim/holder.hpp"

#include "core/time.hpp"

#include "claim/history.hpp"
#include "claim/locks.hpp"
#include "claim/sealing.hpp"
#include "claim/state.hpp"
#include "claim/token.hpp"
#include "claim/waiters.hpp"
#include "pg/boundary.hpp"
#include "stats/events.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

// Our own class: what no standard code says.
constexpr int kNoClaim = MAKE_SQLSTATE('I', 'D', '4', '0', '4');
constexpr int kClaimLost = MAKE_SQLSTATE('I', 'D', '4', '0', '9');

[[noreturn]] void raise_claim_lost() {
    ereport(ERROR, (errcode(kClaimLost), errmsg("claim on this key is lost"),
                    errdetail("The token does not match the record's current claim."),
                    errhint("Another session took the request over. Stop, and call idem_begin to "
                            "get its result.")));
    pg_unreachable();
}

// The claim is no longer in progress, and may get its result, but nothing that a lease is for.
[[noreturn]] void raise_no_lease(core::Status status) {
    bool unknown = status == core::Status::Unknown;
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             unknown ? errmsg("the outcome of this attempt is unknown")
                     : errmsg("the attempts of this key are used up"),
             unknown ? errdetail("The claim was ended as unknown and has no lease.")
                     : errdetail("The lease of the claim has expired and cannot be renewed."),
             unknown ? errhint("Call idem_complete or idem_fail without retryable when the outcome "
                               "is known, or let an operator call idem_resolve.")
                     : errhint("Call idem_complete, idem_fail or idem_unknown.")));
    pg_unreachable();
}

// The claim that a caller speaks of.
struct FoundClaim {
    OpenClaim* open;  // nullptr: the row has it, committed or ended as unknown by this transaction
    store::Record record;
    bool ended;            // the token has recorded a result already; the record may be empty then
    store::Version found;  // what the row was, whatever its lease
};

// The claim in the committed record. Only the holder of its token may touch it.
FoundClaim committed_claim(const ClaimRef& ref) {
    FoundClaim claim{};
    bool found =
        ref.token ? lock_and_find(ref.id, &claim.record) : store::find(ref.id, &claim.record).found;
    if (!found) raise_no_claim();
    if (!ref.token)
        ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("a token is required"),
                        errdetail("The claim was not begun in this transaction."),
                        errhint("Pass the token that idem_begin returned.")));
    if (claim.record.token != *ref.token) raise_claim_lost();
    // The token may still record a result of a claim that is unknown, or was silent.
    core::Status status = claim.record.status;
    bool silent = status == core::Status::Exhausted && claim.record.lease_until != pg::kNoTime;
    claim.ended = status != core::Status::InProgress && status != core::Status::Unknown && !silent;
    claim.found = store::any_lease_of(claim.record);
    if (claim.ended) unlock(ref.id);
    return claim;
}

// Errors: ID404, ID409, 22004. Takes the key's lock, waiting for a transaction that is deciding
// about the key: if that transaction takes the claim over and commits, the claim is lost; if it
// rolls back, not.
FoundClaim find_claim(const ClaimRef& ref) {
    auto speaks_of = [&ref](const OpenClaim* claim) {
        return !ref.token || *ref.token == claim->begun.token;
    };
    if (OpenClaim* claim = open_claim(ref.id)) {
        if (claim->busy_level > 0)
            ereport(
                ERROR,
                (errcode(ERRCODE_OBJECT_IN_USE), errmsg("the claim is being written"),
                 errdetail("A trigger on idempotency.record has called back for the same key.")));
        if (!speaks_of(claim)) raise_claim_lost();
        return {claim, current_record(claim), false, {}};
    }
    OpenClaim* ended = ended_claim(ref.id);
    if (ended == nullptr || !speaks_of(ended)) return committed_claim(ref);
    if (ended->how == ClaimEnd::Released) raise_no_claim();
    if (ended->how == ClaimEnd::Unknown)
        return committed_claim({ref.function, ref.id, ended->begun.token});
    return {ended, {}, true, {}};
}

// The same, for what only a claim with a lease can be asked for.
void require_lease(const FoundClaim& claim) {
    if (!claim.ended && claim.record.status != core::Status::InProgress)
        raise_no_lease(claim.record.status);
}

// Writes the changed record.
void save(FoundClaim* claim) {
    if (claim->open != nullptr)
        write_claim(claim->open, claim->record);
    else if (!store::update(claim->record, claim->found))
        store::raise_claim_overtaken();
}

// The same, and the claim has ended.
void save_ended(FoundClaim* claim) {
    save(claim);
    if (claim->open != nullptr) {
        bool unknown = claim->record.status == core::Status::Unknown;
        end_claim(claim->open, unknown ? ClaimEnd::Unknown : ClaimEnd::Result);
        unlock_written_claim(claim->open);
        return;
    }
    wake_waiters_at_commit(claim->record.id);
    if (store::bypasses_executor(claim->record.id)) unlock(claim->record.id);
}

// Undoes the claim, and it has ended. Within its transaction the row is what it was before; later
// the record of a first attempt is removed, and an earlier attempt's may be run again.
void withdraw(const core::Policy& policy, FoundClaim* claim) {
    if (OpenClaim* open = claim->open) {
        if (open->has_before && open->before.status == core::Status::InProgress)
            take_back_attempt(open->before);
        withdraw_claim(open);
        return;
    }
    store::Record* record = &claim->record;
    wake_waiters_at_commit(record->id);
    keep_attempt(policy, *record, store::AttemptEnd::Released);
    if (record->attempt == 1) {
        if (!store::remove(record->id, store::version_of(*record))) store::raise_claim_overtaken();
        return;
    }
    // An earlier attempt was overwritten when this one was committed; what is left of it may run
    // again. The token that is given back dies: nothing is recorded under it.
    record->status = core::Status::Retryable;
    record->attempt--;
    name_no_backend(record);
    record->lease_until = pg::kNoTime;
    record->next_attempt_at = GetCurrentTimestamp();
    keep_long_enough(record->next_attempt_at, record);
    keep_if_half_way(record);
    record->token = new_token(record->token);
    if (!store::update(*record, claim->found)) store::raise_claim_overtaken();
}

// An attempt that has failed for now may go on after a pause, or is the last one.
void mark_failed(const Failure& failure, const core::Policy& policy, store::Record* record) {
    bool last = record->status == core::Status::Exhausted || attempts_used_up(policy, *record);
    mark_ended(!failure.retryable ? core::Status::Failed
               : last             ? core::Status::Exhausted
                                  : core::Status::Retryable,
               record);
    record->error = clipped_error(failure.error);
    if (record->status == core::Status::Exhausted) return keep_exhausted(policy, record);
    if (record->status == core::Status::Retryable) {
        std::int64_t pause =
            core::backoff_ceiling(policy.retry_base, policy.retry_cap, record->attempt);
        if (policy.retry_jitter != core::RetryJitter::None)
            pause = core::jittered(pause, pg_prng_double(&pg_global_prng_state));
        record->next_attempt_at =
            pg::after(record->finished_at, failure.retry_after.value_or(pause));
    }
    keep_long_enough(Max(record->finished_at, record->next_attempt_at), record);
    keep_if_half_way(record);
}

void mark_unknown(text* error, text* reference, store::Record* record) {
    mark_ended(core::Status::Unknown, record);
    record->error = clipped_error(error);
    record->reference = clipped_error(reference);
}

// The claim, whose lease is to be prolonged.
FoundClaim claim_to_prolong(const ClaimRef& ref) {
    FoundClaim claim = find_claim(ref);
    if (claim.ended)
        ereport(ERROR, (errcode(kClaimLost), errmsg("claim on this key has ended"),
                        errdetail("Its result has been recorded."),
                        errhint("There is no lease to extend.")));
    require_lease(claim);
    return claim;
}

// A lease that was given becomes the claim's own; without one, the claim's own counts again.
TimestampTz prolong(const core::Policy& policy, FoundClaim* claim,
                    std::optional<std::int64_t> lease) {
    store::Record* record = &claim->record;
    record->lease = Min(lease.value_or(record->lease), policy.max_lease);
    record->lease_until = pg::after(GetCurrentTimestamp(), record->lease);
    save(claim);
    return record->lease_until;
}

// The claim, to be ended. What idem_execute runs must not end the claim that it is run for: its
// effects would stay, and the next caller would run it again.
FoundClaim claim_to_end(const ClaimRef& ref) {
    FoundClaim claim = find_claim(ref);
    if (claim.open != nullptr && claim.open->operated)
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("the operation of this key is running"),
                        errdetail("idem_execute ends its claim when the operation has returned."),
                        errhint("Return the answer, or raise an error.")));
    return claim;
}

// Records the result that `mark` puts into the record, and the response, which an unknown outcome
// has not. With `as_unknown` a record that is unknown says so already.
template <typename Mark>
bool end(const ClaimRef& ref, const Response& response, Mark mark, bool as_unknown = false) {
    config::ScopePolicy policy = enter(ref);
    FoundClaim claim = claim_to_end(ref);
    if (claim.ended || (as_unknown && claim.record.status == core::Status::Unknown)) return false;
    bool has_history = claim.record.status != core::Status::InProgress;
    store::Record* record = &claim.record;
    // The ttl of a silent claim that was stored as exhausted is forgotten.
    if (record->status == core::Status::Exhausted && !store::is_derived(*record)) {
        std::int64_t retention = Max(policy.values.retention, policy.values.ttl);
        record->expires_at = pg::after(record->claimed_at, policy.values.ttl);
        record->retained_until = pg::after(record->claimed_at, retention);
    }
    mark(policy.values, record);
    allow_as_claimed(*record, &policy.values);
    bool unknown = record->status == core::Status::Unknown;
    keep_response(unknown ? Response{} : response, policy, record);
    seal(record, policy.values.encrypt);
    save_ended(&claim);
    if (has_history) take_back_attempt(*record);
    keep_ended_attempt(policy.values, *record);
    stats::account_for_result(pg::bytes_of(ref.id.scope), record->status);
    return true;
}

}  // namespace

config::ScopePolicy enter(const ClaimRef& ref) {
    pg::require_writable(ref.function);
    return config::policy_for(pg::bytes_of(ref.id.scope));
}

bool complete(const ClaimRef& ref, const Response& response, std::optional<std::int64_t> ttl) {
    return end(ref, response, [ttl](const core::Policy& policy, store::Record* record) {
        mark_ended(core::Status::Completed, record);
        if (ttl) {
            record->expires_at = pg::after(record->claimed_at, Min(*ttl, policy.max_ttl));
            if (store::is_derived(*record))
                record->expires_at = Min(record->expires_at, record->retained_until);
            else
                record->retained_until = Max(record->retained_until, record->expires_at);
        }
        keep_long_enough(record->finished_at, record);
    });
}

bool fail(const ClaimRef& ref, const Response& response, const Failure& failure) {
    auto mark = [&failure](const core::Policy& policy, store::Record* record) {
        if (failure.retryable && record->status == core::Status::Unknown)
            raise_no_lease(record->status);
        if (failure.uncertain && is_unknown_if_silent(policy, *record))
            mark_unknown(failure.error, nullptr, record);
        else
            mark_failed(failure, policy, record);
    };
    return end(ref, response, mark, /* as_unknown */ failure.uncertain);
}

bool end_unknown(const ClaimRef& ref, text* error, text* reference) {
    auto mark = [=](const core::Policy&, store::Record* record) {
        mark_unknown(error, reference, record);
    };
    return end(ref, Response{}, mark, /* as_unknown */ true);
}

bool release(const ClaimRef& ref) {
    config::ScopePolicy policy = enter(ref);
    FoundClaim claim = claim_to_end(ref);
    if (claim.ended) return false;
    require_lease(claim);
    withdraw(policy.values, &claim);
    return true;
}

TimestampTz extend(const ClaimRef& ref, std::optional<std::int64_t> lease) {
    config::ScopePolicy policy = enter(ref);
    FoundClaim claim = claim_to_prolong(ref);
    return prolong(policy.values, &claim, lease);
}

TimestampTz checkpoint(const ClaimRef& ref, text* recovery_point, Jsonb* state,
                       std::optional<std::int64_t> lease) {
    config::ScopePolicy policy = enter(ref);
    FoundClaim claim = claim_to_prolong(ref);
    allow_as_claimed(claim.record, &policy.values);
    check_size("state", state, policy.values);
    claim.record.recovery_point = recovery_point;
    claim.record.state = state;
    seal(&claim.record, policy.values.encrypt);
    return prolong(policy.values, &claim, lease);
}

void raise_no_claim() {
    ereport(ERROR, (errcode(kNoClaim), errmsg("no claim on this key"),
                    errdetail("There is no record of this scope, principal and key."),
                    errhint("Call idem_begin first, with the same scope and principal.")));
    pg_unreachable();
}

void mark_completed(store::Record* record) {
    mark_ended(core::Status::Completed, record);
    keep_long_enough(record->finished_at, record);
}

void account_for_completed(const core::Policy& policy, const store::Record& record) {
    keep_ended_attempt(policy, record);
    stats::account_for_result(pg::bytes_of(record.id.scope), record.status);
}

void finish_silently(OpenClaim* claim, const core::Policy& policy) {
    FoundClaim found{claim, current_record(claim), false, {}};
    mark_completed(&found.record);
    save_ended(&found);
    account_for_completed(policy, found.record);
}

}  // namespace idem::claim
