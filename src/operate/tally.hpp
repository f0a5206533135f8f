// The results for many records: counts, and some names. Names go to the caller, and not to the log.
#pragma once

#include "pg/pg.hpp"

namespace idem::operate {

// The results of a function called for each record.
inline constexpr const char* kDone = "done";
inline constexpr const char* kRunning = "running";     // a transaction or a lease has the key
inline constexpr const char* kPassed = "passed";       // there is nothing left to do
inline constexpr const char* kClosed = "closed";       // its policy excludes the caller
inline constexpr const char* kNoKey = "no_key";        // it can't be sealed, or does not open
inline constexpr const char* kTooLarge = "too_large";  // the answer, for the scope's policy

// A record in execution.
struct RunningKey {
    Datum scope;
    Datum principal;
    Datum key;
};

// The records left in a scope, and the obstacle. The obstacle has a name: the role that a policy
// admits, the invalid option of a policy, or the reason why a record can't be decided.
struct LeftInScope {
    const text* scope;
    const char* what;  // nullptr: the scope has been opened since
    const text* name;
    std::int64_t records;
    std::int64_t attempts;
};

inline constexpr int kMostTold = 100;

// Of all scopes, with details of the first ones.
struct Left {
    std::int64_t records;
    std::int64_t attempts;
    LeftInScope scopes[kMostTold];
    int told;
};

struct Tally {
    const char* procedure;
    MemoryContext context;  // of the reported names
    std::int64_t total;
    std::int64_t seen;
    std::int64_t done;
    std::int64_t running;
    std::int64_t open;     // transactions that may still write such records
    Left closed;           // in scopes that are closed to the caller
    Left undecided;        // for a reason of each record
    std::int64_t no_key;   // of these
    std::int64_t told_at;  // by the monotonic clock
    RunningKey keys[kMostTold];
};

// Allocated in the current memory context, like the names later. `procedure` is its name, with
// parentheses.
Tally* begin_tally(const char* procedure);

// Counts the result for a record, given its scope, principal and key.
void count_record(Tally* tally, const text* word, const Datum* row);

// Attempts without a record: the remaining history of a closed scope.
void count_closed_attempts(Tally* tally, const text* scope, std::int64_t attempts);

// A notice, if the last one was some time ago.
void tell_progress(Tally* tally);

// Whether nothing was left.
bool is_complete(const Tally& tally);

// The reported names, as arrays of objects.
Jsonb* running_keys(const Tally& tally);
Jsonb* scopes_of(const Left& left);

}  // namespace idem::operate
