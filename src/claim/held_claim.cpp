#include "claim/held_claim.hpp"

#include "claim/key_lock.hpp"
#include "claim/liveness.hpp"
#include "pg/errors.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

bool speaks_of(const ClaimRef& ref, const OpenClaim* claim) {
    return !ref.token || *ref.token == claim->begun.token;
}

HeldClaim own_claim(OpenClaim* claim, bool ended) {
    return {claim, current_record(claim), ended};
}

// The claim in the committed record. Only the holder of its token may touch it.
HeldClaim committed_claim(const ClaimRef& ref) {
    if (ref.token)
        lock(ref.id);
    HeldClaim claim{};
    if (!store::store().find(ref.id, &claim.record))
        pg::raise_no_claim();
    if (!ref.token)
        pg::raise_token_required();
    if (claim.record.token != *ref.token)
        pg::raise_claim_lost();
    claim.ended = claim.record.status != core::Status::InProgress &&
                  claim.record.status != core::Status::Unknown;
    if (claim.ended)
        unlock(ref.id);
    return claim;
}

}  // namespace

HeldClaim held_claim(const ClaimRef& ref) {
    if (OpenClaim* claim = open_claim(ref.id)) {
        if (!speaks_of(ref, claim))
            pg::raise_claim_lost();
        return own_claim(claim, false);
    }
    OpenClaim* ended = ended_claim(ref.id);
    if (ended == nullptr || !speaks_of(ref, ended))
        return committed_claim(ref);
    if (ended->released)
        pg::raise_no_claim();
    return own_claim(ended, true);
}

void save(HeldClaim* claim) {
    if (claim->open != nullptr)
        write_claim(claim->open, claim->record);
    else if (!store::store().update(claim->record, claim->record.token))
        pg::raise_claim_overtaken();
}

void save_ended(HeldClaim* claim) {
    save(claim);
    if (claim->open != nullptr)
        end_claim(claim->open);
    let_go_at_commit(claim->record.id, claim->record.token);
}

void withdraw(HeldClaim* claim) {
    let_go_at_commit(claim->record.id, claim->record.token);
    if (claim->open != nullptr)
        withdraw_claim(claim->open);
    else
        (void)store::store().remove(claim->record.id, claim->record.token);
}

}  // namespace idem::claim
