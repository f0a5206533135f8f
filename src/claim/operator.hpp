// For operators: decide a record by hand, look at one, remove one.
#pragma once

#include "core/outcome.hpp"

#include "claim/holder.hpp"
#include "claim/question.hpp"

namespace idem::claim {

// Ends whatever a record waits for: `Release` lets the next caller execute it once more, the others
// record a final result. The old holder's token is void afterwards, and the record says who
// decided. Errors: ID404; 55000 for a record that is final already.
void resolve(const ClaimRef& ref, core::Resolution resolution, const Response& response,
             text* error);

// The record as it is, without deciding anything. Works on a standby.
Answer get(const store::Identity& id);

// Whether the record is of a claim that lives. The views ask it, too.
bool claim_lives(const store::Record& record);

// Removes the record. False if there is none. An error (55006) while a lease lives.
bool forget(const ClaimRef& ref);

}  // namespace idem::claim
