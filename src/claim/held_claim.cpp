#include "claim/held_claim.hpp"

#include "claim/ending.hpp"
#include "claim/key_lock.hpp"
#include "claim/liveness.hpp"
#include "claim/locked_record.hpp"
#include "claim/records.hpp"
#include "pg/errors.hpp"

namespace idem::claim {

namespace {

bool speaks_of(const ClaimRef& ref, const OpenClaim* claim) {
    return !ref.token || *ref.token == claim->begun.token;
}

// The claim that the token stood for is over, so nothing keeps its session's lock any more. Unless
// this transaction has written something: that could be what ended the claim, and be undone.
[[noreturn]] void refuse(const ClaimRef& ref, void (*raise)()) {
    if (ref.token && !TransactionIdIsValid(GetTopTransactionIdIfAny()))
        let_go_now(ref.id, *ref.token);
    raise();
    pg_unreachable();
}

// The claim in the committed record. Only the holder of its token may touch it.
HeldClaim committed_claim(const ClaimRef& ref) {
    HeldClaim claim{};
    bool found = ref.token ? lock_and_find(ref.id, &claim.record)
                           : records().find(ref.id, &claim.record).found;
    if (!found) refuse(ref, pg::raise_no_claim);
    if (!ref.token) pg::raise_token_required();
    if (claim.record.token != *ref.token) refuse(ref, pg::raise_claim_lost);
    claim.ended = claim.record.status != core::Status::InProgress;
    if (claim.ended) {
        unlock(ref.id);
        let_go_at_commit(ref.id, *ref.token);
    }
    return claim;
}

// An earlier attempt was overwritten when this one was written; what is left of it may run again.
void give_back_attempt(HeldClaim* claim) {
    store::Record* record = &claim->record;
    record->status = core::Status::Retryable;
    record->attempt--;
    record->held = false;
    record->lease_until = pg::kNoTime;
    record->next_attempt_at = GetCurrentTimestamp();
    keep_long_enough(record->next_attempt_at, record);
    save(claim);
}

void remove_row(const store::Record& record) {
    if (!records().remove(record.id, store::version_of(record))) pg::raise_claim_overtaken();
}

}  // namespace

HeldClaim held_claim(const ClaimRef& ref) {
    if (OpenClaim* claim = open_claim(ref.id)) {
        if (claim->busy_level > 0) pg::raise_being_written();
        if (!speaks_of(ref, claim)) pg::raise_claim_lost();
        return {claim, current_record(claim), false};
    }
    OpenClaim* ended = ended_claim(ref.id);
    if (ended == nullptr || !speaks_of(ref, ended)) return committed_claim(ref);
    if (ended->released) pg::raise_no_claim();
    return {ended, {}, true};
}

void save(HeldClaim* claim) {
    if (claim->open != nullptr) {
        write_claim(claim->open, claim->record);
        return;
    }
    store::Version held{claim->record.token, core::Status::InProgress};
    if (!records().update(claim->record, held)) pg::raise_claim_overtaken();
}

void save_ended(HeldClaim* claim) {
    save(claim);
    if (claim->open != nullptr) {
        end_claim(claim->open, false);
        unlock_written_claim(claim->open);
    } else if (records().rows_guard_themselves) {
        unlock(claim->record.id);
    }
    let_go_at_commit(claim->record.id, claim->record.token);
}

void withdraw(HeldClaim* claim) {
    let_go_at_commit(claim->record.id, claim->record.token);
    bool written = claim->open == nullptr || claim->open->written_level > 0;
    if (!written) {
        withdraw_claim(claim->open);
        return;
    }
    if (claim->record.attempt > 1)
        give_back_attempt(claim);
    else
        remove_row(claim->record);
    if (claim->open != nullptr) end_claim(claim->open, true);
}

}  // namespace idem::claim
