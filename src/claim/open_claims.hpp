// The claims that this transaction has begun: what it keeps of them, and when it writes them. They
// live in backend memory and are written once: when they end, or when the transaction commits with
// them still open, which makes them leased. Where a write may run code of users it cannot wait for
// the commit: there the row is written at once.
#pragma once

#include "store/record.hpp"

namespace idem::claim {

enum class ClaimEnd { Result, Unknown, Released };

// Levels are transaction nesting levels; 0 means that it has not happened. A rollback to a
// savepoint undoes what happened at its level or deeper.
struct OpenClaim {
    OpenClaim* older;            // of the transaction
    OpenClaim* older_in_bucket;  // of those with the same hash
    OpenClaim* next_nested;      // of those to which something happened in a subtransaction
    bool nested;                 // it is among them
    store::Record begun;         // as idem_begin made it; never changes
    store::Record before;        // the row it takes the place of, if `has_before`
    bool has_before;
    bool before_is_gone;  // that row was removed meanwhile, and the claim has inserted its own
    int claimed_level;
    int written_level;  // from here on the row carries our token and is the newer truth
    int ended_level;    // with a result, as unknown, or released
    int busy_level;  // its row is being written: a trigger on the table must not end it meanwhile
    bool operated;   // idem_execute is running its operation, which must not end it
    bool leased;     // its row says so already: nothing is left to write at commit
    ClaimEnd how;    // it has ended
    bool transactional;  // it has to end before the commit, as the policy of the grant has it
};

// Remembers a claim of the current (sub)transaction. Copies the record and the row that it takes
// the place of (nullptr: there is none). A `transactional` claim that is still open at the commit
// is an error (55000) then.
OpenClaim* add_claim(const store::Record& record, const store::Record* before, bool transactional);

// Forgets a claim that was not granted after all.
void drop_claim(OpenClaim* claim);

// This transaction's claim on a key, or nullptr. Open ones only, or, with `ended`, the one that it
// ended last.
OpenClaim* open_claim(const store::Identity& id);
OpenClaim* ended_claim(const store::Identity& id);

// Claims of a principal in a scope that are open in this transaction and may become leased, less
// the open ones that the table has and that may not.
int uncounted_claims(const store::Identity& id);

// The claim's record as it stands now, in the current memory context.
store::Record current_record(const OpenClaim* claim);

// Writes the record of a claim. An error (40001) if another transaction got in, which only an
// engine that ignores our lock could let happen.
void write_claim(OpenClaim* claim, const store::Record& record);

// Writes the record of a claim that is just being granted. False if another transaction got in.
bool write_early(OpenClaim* claim);

// Marks it ended in the current (sub)transaction.
void end_claim(OpenClaim* claim, ClaimEnd how);

// Gives back the lock of a claim whose result has just been written, if the row guards the key from
// now on. Not if the claim was begun outside the current savepoint: a rollback to it would undo the
// row and leave the claim unguarded.
void unlock_written_claim(OpenClaim* claim);

// Ends a claim as if it had never been begun: the row is what it was before, or there is none. The
// key is free when the transaction ends; at once if that has written nothing at all, unless a
// rollback to a savepoint could bring the claim back.
void withdraw_claim(OpenClaim* claim);

// Drops the memory of a claim that was begun, written and ended in the current (sub)transaction:
// a rollback takes all of it at once.
void forget_ended_claim(OpenClaim* claim);

// For a call that only another transaction may make for the key.
[[noreturn]] void raise_own_claim_open();

// Called once, when the library is loaded.
void watch_transactions();

// Has our callback called before those that others have registered until now: what postgres_fdw
// commits on other servers in its own is to come after our write, which may fail. The server calls
// the callbacks in the order of the last registration first.
void come_first_at_commit();

}  // namespace idem::claim
