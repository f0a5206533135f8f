// The allowed behaviour of a key, call by call: a second, independent reading of the documentation,
// which shares no line with the extension. Times are only known to lie between a call's invocation
// and its return. So the record keeps ranges, and a call is legal if some moment makes it legal.
#pragma once

#include <optional>

#include "check/history.hpp"

namespace idem::chaos {

struct Range {
    Micros lo = 0;
    Micros hi = 0;
};

enum class Kind { Absent, InProgress, Completed, Failed, Retryable, Exhausted, Unknown };

struct Record {
    Kind kind = Kind::Absent;
    std::int64_t token = 0;  // 0: no client was told
    int attempt = 0;
    int fingerprint = 0;
    int status_code = 0;
    std::string body;
    std::string point;
    bool by_operator = false;
    bool doubted = false;   // a sweeper has given it up as unknown
    bool silent = false;    // Exhausted: the last attempt timed out
    bool given_up = false;  // its error says so of a sweeper; the next attempt has it till its end
    Range ttl;              // of this attempt; what lies between the claim and these ends
    Range retention;
    Micros lease = 0;
    Range claimed;
    Range expires;
    Range retained;
    Range lease_until;
    Micros gone_from = kNever;  // the holder's connection may have ended by then, and so the lease
    Range next_attempt;
};

// The changes of a transaction to a key, at one depth of savepoints.
struct Frame {
    int depth = 0;
    Record record;
    Record before;          // what release goes back to
    bool open = false;      // the claim was begun in this transaction and has not ended
    bool written = false;   // ... and its row has been written already
    bool ended = false;     // it was begun here and has ended
    bool released = false;  // ... by release
    bool erased = false;    // idem_erase has removed the record, and kept no lock
};

// One order of a key's calls leads to one of these.
struct State {
    Record committed;
    std::int64_t owner = 0;     // the transaction that has changed the key and not ended; 0: none
    std::vector<Frame> frames;  // of the owner, outermost first
};

// A call with its place among savepoints.
struct Step {
    const Call* call = nullptr;
    int depth = 0;                // how many savepoints are open
    Micros invoked = 0;           // Prepared transactions end elsewhere, and so at another time
    Micros returned = kNever;     // than their call says.
    bool may_be_skipped = false;  // unknown: it may not have happened
    bool may_be_undone = false;   // Commit: it may have been a rollback
    bool early_rows = false;      // see History
    bool scans_again = false;     // ForgetAll: another scan of the same call follows
    Micros gone_from = kNever;    // a claim with `hold`: its connection may have ended by then
};

// The states that a step can lead to; none if such an answer is impossible.
std::vector<State> after(const State& state, const Step& step, const Rules& rules);

// The state after a sweeper's possible decision by then, if any: there is no call and so no answer.
// The policy abandons claims whose lease has long expired and, if they are held, whose session has
// ended. It takes the key's lock, so it waits until no transaction has the key.
std::optional<State> given_up(const State& state, Micros by, const Rules& rules);

// Whether the step leaves the key unchanged in every state.
bool only_looks(const Call& call);

std::string describe(const Record& record);

}  // namespace idem::chaos
