// For operators: decide a record by hand, and remove one.
#pragma once

#include "core/outcome.hpp"

#include "claim/holder.hpp"

namespace idem::claim {

// What is decided about a record, and why.
struct Resolution {
    core::Resolution action;
    Response response;
    text* error;
    const text* reason;
    bool even_if_running = false;  // a release beside a holder that may live
};

// Whether a reason is given, and not blank.
bool says_why(const text* reason);

// Ends whatever a record waits for: `Release` lets the next caller execute it once more, `Complete`
// and `Fail` record a final result. `Reopen` lets the next caller execute a failed or exhausted one
// once more. The old holder's token is void afterwards, and the record says who decided. Errors:
// ID404; 55000 for a record that the decision is not for; 55006 for a release while a lease lives,
// unless it says `even_if_running`; 22023 without a reason that the policy requires, as for the
// functions below.
void resolve(const ClaimRef& ref, const Resolution& resolution);

// Removes the record. False if there is none. An error (55006) while a lease lives.
bool forget(const ClaimRef& ref, const text* reason);

// ---- one of many: no transaction is waited for, and nothing that runs is touched ----

enum class Verdict {
    Done,
    Running,   // a transaction or a lease has the key
    Skipped,   // there is nothing to decide any more
    Closed,    // the scope's policy does not admit the caller, or is not valid
    NoKey,     // it could not be sealed, for want of a key or because a value does not open
    TooLarge,  // the answer is, for the scope's policy
};

// What a record was when it was chosen, and is to be still: one that is no more is passed over.
struct ExpectedState {
    std::optional<core::Status> status;
    std::optional<TimestampTz> claimed_at;
};

// Where it is not `Done`, the record is as it was.
Verdict resolve_idle(const ClaimRef& ref, const Resolution& resolution, const ExpectedState& seen);

// Removes the record, and leaves no name in the audit.
Verdict erase_idle(const ClaimRef& ref, const text* reason);

}  // namespace idem::claim
