// The actions of a session in one turn, all drawn before the first call, so that they depend only
// on seed, session and turn.
#pragma once

#include "check/history.hpp"
#include "load/random.hpp"

namespace idem::chaos {

// Constant for all turns of a run.
struct Mix {
    int hot_keys = 12;
    int cold_every = 6;     // turns
    int relay_every = 4;    // turns
    int left_every = 5;     // turns: keys whose holders may not come back
    int decided_every = 5;  // turns: keys about which those decide who claim them
    bool prepare = true;
    bool savepoints = true;
    bool operators = true;        // forget and resolve
    bool harm = true;             // clients hang up and have statement_timeout
    bool brief = true;            // keys whose retention ends within the run
    bool foreign = false;         // there is a foreign server
    bool same_statement = false;  // idem_begin has this argument
    bool distributed = false;     // one statement with claim, work and end is a function's call
    bool sums = true;             // accounts that SERIALIZABLE transactions depend on
    bool hold = true;             // has an effect
    int tenants = 0;              // more principals, with a hot key for each
    Micros longest_lease = 10 * kSecond;
    Micros pace = 0;  // a rest after each turn
    std::int64_t body_limit = 65536;
};

enum class Shape { Transactional, Leased, Once, Execute, Look, Operate, Stale, Decide, ForgetAll };
enum class Ending { Complete, Fail, FailRetryable, Unknown, Release, LeaveOpen };
enum class Finish { Commit, Rollback, PrepareCommit, PrepareRollback, HangUp };
// The action on a key in the transaction that then claims it. By token: on another session's claim.
enum class Decision {
    ReleaseOwn,  // a claim of the same transaction, with work
    ReleaseByToken,
    FailByToken,
    Resolve,
    Forget,
    Erase,
    Cleanup
};
// Resets by drivers and frameworks of a connection that goes back to a pool.
enum class Reset { Nothing, UnlockAll, DiscardAll };

struct Plan {
    Shape shape = Shape::Look;
    std::vector<Key> keys;  // mostly one
    const char* isolation = "";
    bool old_snapshot = false;  // taken before the first call
    Micros snapshot_age = 0;    // ... this long
    bool undo_begin = false;    // begin in a savepoint, roll back, begin again
    bool undo_end = false;      // the same with the end
    bool begin_alone = false;   // Execute, Once: a transaction of its own
    bool extend = false;
    bool checkpoint = false;
    bool repeat_end = false;
    bool fails = false;          // the operation of idem_execute
    bool one_statement = false;  // Execute: claim, work and end in one statement of the client's
    bool looks = false;          // the work depends on what its transaction sees of the key
    bool sums = false;           // ... and of accounts that others write as well, if SERIALIZABLE
    bool works_alone = false;    // Leased: some of the work in a transaction of its own
    bool hold = false;           // Leased, Look
    bool foreign = false;        // some of the work on a foreign server
    bool knocks = false;         // Look: asks a closed scope
    Decision decision = Decision::Resolve;  // Decide
    bool undo_decision = false;             // ... in a savepoint, rolled back before the claim
    bool claims_after = false;              // ... and goes on with a claim
    Micros hesitation = 0;                  // ... this much later
    bool tells = false;                     // ... which has secrets of its own
    std::string secret;                     // the value that a call of now stores
    Reset reset = Reset::Nothing;
    int group = 0;  // of accounts
    int slot = 0;
    int fingerprint = 0;
    Micros ttl = 0;
    Micros lease = 0;
    Micros wait = 0;
    Micros retry_after = -1;
    Micros pause = 0;           // of the holder, in the middle of its work
    int statement_timeout = 0;  // milliseconds
    std::int64_t body_size = 0;
    int status_code = 200;
    Ending ending = Ending::Complete;
    bool learns = false;  // Unknown: hears what became of the attempt
    Finish finish = Finish::Commit;
    std::string action;  // Operate
};

Plan draw_plan(const Mix& mix, std::uint64_t seed, int session, std::int64_t turn);

// The scopes of a run and their rules; the workload sets these policies.
std::map<std::string, Rules> scopes();
std::vector<Key> hot_keys(const Mix& mix);
std::vector<Key> relay_keys();
std::vector<Key> left_keys(std::int64_t turn);
// Of a principal that may be forgotten; another one after a while.
std::vector<Key> decided_keys(std::int64_t turn);
Key closed_key();

// Groups of accounts, each with a list in every slot.
inline constexpr int kGroups = 4000;
inline constexpr int kSlots = 3;

}  // namespace idem::chaos
