#include "claim/held_claim.hpp"

#include "claim/ending.hpp"
#include "claim/key_lock.hpp"
#include "claim/liveness.hpp"
#include "claim/locked_record.hpp"
#include "claim/records.hpp"
#include "claim/token.hpp"
#include "pg/errors.hpp"

namespace idem::claim {

namespace {

bool speaks_of(const ClaimRef& ref, const OpenClaim* claim) {
    return !ref.token || *ref.token == claim->begun.token;
}

// The claim in the committed record. Only the holder of its token may touch it.
HeldClaim committed_claim(const ClaimRef& ref) {
    HeldClaim claim{};
    bool found = ref.token ? lock_and_find(ref.id, &claim.record)
                           : records().find(ref.id, &claim.record).found;
    if (!found) pg::raise_no_claim();
    if (!ref.token) pg::raise_token_required();
    if (claim.record.token != *ref.token) pg::raise_claim_lost();
    claim.ended = claim.record.status != core::Status::InProgress;
    if (claim.ended) unlock(ref.id);
    return claim;
}

// An earlier attempt was overwritten when this one was committed; what is left of it may run again.
// The token that is given back dies: nothing is recorded under it.
void give_back_attempt(const core::Policy& policy, HeldClaim* claim) {
    store::Record* record = &claim->record;
    record->status = core::Status::Retryable;
    record->attempt--;
    name_no_backend(record);
    record->lease_until = pg::kNoTime;
    record->next_attempt_at = GetCurrentTimestamp();
    keep_long_enough(record->next_attempt_at, record);
    keep_if_undecided(policy, record);
    store::Version held{record->token, core::Status::InProgress, pg::kNoTime};
    record->token = new_token(record->token);
    if (!records().update(*record, held)) pg::raise_claim_overtaken();
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
    store::Version held{claim->record.token, core::Status::InProgress, pg::kNoTime};
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
}

void withdraw(const core::Policy& policy, HeldClaim* claim) {
    OpenClaim* open = claim->open;
    if (open == nullptr && claim->record.attempt > 1) {
        give_back_attempt(policy, claim);
    } else if (open == nullptr) {
        remove_row(claim->record);
    } else if (open->written_level == 0) {
        withdraw_claim(open);
    } else {
        restore_before(open);
        end_claim(open, true);
    }
}

}  // namespace idem::claim
