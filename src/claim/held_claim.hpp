// Finding the claim that a caller speaks of, and writing back what it does to it. The two kinds of
// claim differ here and nowhere else: an open claim of this transaction, or a committed one that
// the token proves.
#pragma once

#include "claim/finish.hpp"
#include "core/policy.hpp"

namespace idem::claim {

struct HeldClaim {
    OpenClaim* open;  // nullptr: the claim was committed before
    store::Record record;
    bool ended;  // the token has recorded a result already; the record may be empty then
};

// Errors: ID404, ID409, 22004. Takes the key's lock, waiting for whoever is deciding about the key:
// if that transaction takes the claim over and commits, the claim is lost; if it rolls back, not.
HeldClaim held_claim(const ClaimRef& ref);

// Writes the changed record.
void save(HeldClaim* claim);

// The same, and the claim has ended.
void save_ended(HeldClaim* claim);

// Undoes the claim, and it has ended. Within its transaction the row is what it was before; later
// the record of a first attempt is removed, and an earlier attempt's may be run again.
void withdraw(const core::Policy& policy, HeldClaim* claim);

}  // namespace idem::claim
