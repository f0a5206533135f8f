// What has become of many records: how many, and some of them by name. Names are told to the
// caller, and not to the log.
#pragma once

#include "pg/pg.hpp"

namespace idem::operate {

// What a function returns that is called for each record.
inline constexpr const char* kDone = "done";
inline constexpr const char* kRunning = "running";     // a transaction or a lease has the key
inline constexpr const char* kPassed = "passed";       // there is nothing to do any more
inline constexpr const char* kClosed = "closed";       // its policy does not admit the caller
inline constexpr const char* kNoKey = "no_key";        // it can't be sealed, or does not open
inline constexpr const char* kTooLarge = "too_large";  // the answer, for the scope's policy

// A record that is being executed.
struct RunningKey {
    Datum scope;
    Datum principal;
    Datum key;
};

// What is left in a scope, and what is in the way there. It has a name: the role that a policy
// admits, the option by which it is not valid, or why a record can't be decided.
struct LeftInScope {
    const text* scope;
    const char* what;  // nullptr: it has been opened since
    const text* name;
    std::int64_t records;
    std::int64_t attempts;
};

inline constexpr int kMostTold = 100;

// Of all scopes, and of the first ones each.
struct Left {
    std::int64_t records;
    std::int64_t attempts;
    LeftInScope scopes[kMostTold];
    int told;
};

struct Tally {
    const char* procedure;
    MemoryContext context;  // of what is told
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

// In the current memory context, where the names will be as well. `procedure` is its name, with
// parentheses.
Tally* begin_tally(const char* procedure);

// What was returned for a record: its scope, principal and key.
void count_record(Tally* tally, const text* word, const Datum* row);

// Beside records: what is left of the history of a scope that is closed.
void count_closed_attempts(Tally* tally, const text* scope, std::int64_t attempts);

// A notice, if the last one was some time ago.
void tell_progress(Tally* tally);

// Whether nothing was left, for whatever reason.
bool is_complete(const Tally& tally);

// What is told, as arrays of objects.
Jsonb* running_keys(const Tally& tally);
Jsonb* scopes_of(const Left& left);

}  // namespace idem::operate
