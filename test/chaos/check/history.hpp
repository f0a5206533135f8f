// A run as the clients saw it: one entry per call. The checker uses nothing else of a run, so a
// kept history can be judged again.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace idem::chaos {

using Micros = std::int64_t;  // since 1970, of the clock that client and server share

inline constexpr Micros kMillisecond = 1000;
inline constexpr Micros kSecond = 1000 * kMillisecond;
inline constexpr Micros kNever = std::numeric_limits<std::int64_t>::max();

struct Key {
    std::string scope;
    std::string principal;
    std::string key;

    bool operator<(const Key& other) const {
        return std::tie(scope, principal, key) < std::tie(other.scope, other.principal, other.key);
    }
    bool operator==(const Key& other) const { return !(*this < other) && !(other < *this); }
};

enum class Function {
    Begin,
    Complete,
    Fail,
    Unknown,  // idem_unknown
    Release,
    Extend,
    Checkpoint,
    Once,
    Execute,
    Get,
    Forget,
    Resolve,
    Erase,
    Cleanup,    // of all keys; written down with the one that its transaction goes on with
    Drop,       // DROP EXTENSION and CREATE EXTENSION: every record goes
    ForgetAll,  // idem_forget_principal: a procedure, which commits as it goes
    Scan,       // the contents of the tables for a principal
    Work,       // rows of the work: what it saw and therefore did
    Foreign,    // a row that a foreign server writes
    Effect,
    Savepoint,
    RollbackTo,
    Commit,
    Rollback,
    Prepare,
    CommitPrepared,
    RollbackPrepared,
};

enum class Result {
    Ok,
    Error,  // the server refused: nothing of it has happened
    Info,   // the client never learned: all of it has happened, or nothing
};

// Zero and empty stand for "not given" and "null".
struct Asked {
    int fingerprint = 0;
    std::int64_t token = 0;
    Micros ttl = 0;
    Micros lease = 0;
    Micros retry_after = -1;
    bool retryable = false;
    bool too_large = false;  // the body exceeds the limit
    int status_code = 0;
    std::string body;  // its digest, see digest.hpp
    std::string point;
    std::string action;
    std::string effect;  // of the call that ends the claim: the row that its transaction writes
    std::string part;    // Work, Foreign: the row that it writes
    std::string secret;  // a value of the principal's that the call gives into safekeeping
    int savepoint = 0;   // Savepoint, RollbackTo: its number in the transaction, from 1
    bool hold = false;   // the claim ends with its connection
};

struct Answer {
    std::string outcome;  // of Scan: the secrets that it met, with spaces between them
    bool yes = false;     // of functions that return boolean
    bool found = false;   // begin, get: the record is known
    std::int64_t token = 0;
    int attempt = 0;
    std::string status;
    int status_code = 0;
    std::string body;
    std::string point;
    std::string error;
    std::string generation;  // execute: when the key was first claimed, which later attempts keep
};

struct Call {
    int session = 0;
    int connection = 0;  // of the session, counted
    int timeline = 0;    // of the server asked, if several take over from each other
    int node = 0;        // that was asked, as Citus counts them; 0: the coordinator, or the server
    std::int64_t transaction = 0;
    bool alone = false;  // a transaction of its own
    Function function = Function::Begin;
    Key key;
    Asked asked;
    Result result = Result::Ok;
    std::string sqlstate;
    std::string message;  // of an internal error (XX000)
    Answer answer;
    Micros invoked = 0;
    Micros returned = kNever;  // Info: when nothing of it could be under way any more
};

// A row that the work itself has written, in the transaction that ends its claim.
struct Effect {
    std::string id;
    std::int64_t transaction = 0;
    Key key;
};

enum class PartKind {
    Once,   // written unless its transaction saw one of its generation
    Point,  // work that a recovery point stands for
    Alone,  // by the holder of a committed claim, in a transaction that calls nothing of ours
    Other,
};

// A row of the work that its transaction writes before the claim ends, if it ends there at all.
struct Part {
    std::int64_t number = 0;  // grows with every row of a key
    std::string id;
    std::int64_t transaction = 0;
    Key key;
    std::string generation;
    std::int64_t token = 0;  // of the claim; 0: it was granted by a call that tells none
    PartKind kind = PartKind::Other;
};

inline constexpr std::size_t kLookedAt = 3;  // parts

// What a transaction that was granted a key saw of the key's parts. The row commits with the
// transaction.
struct Look {
    std::int64_t transaction = 0;
    Key key;
    std::int64_t token = 0;
    std::vector<std::int64_t> latest;  // numbers of the last kLookedAt parts, the last one first
    std::string point;                 // the recovery point that it was granted
    bool point_seen = true;            // and whether it saw the part of that name
};

// What a committed SERIALIZABLE transaction saw of an object that others also write: the numbers of
// the transactions that had written it. Transaction 0 is the final read.
struct Read {
    std::int64_t transaction = 0;
    std::string object;
    bool ordered = false;  // a list to which they append; else a set of rows
    std::vector<std::int64_t> writers;
};

// An operator changes shards or nodes of a cluster.
struct ShardMove {
    Micros from = 0;
    Micros to = kNever;
};

// A row on the foreign server.
struct ForeignRow {
    std::string id;
    std::int64_t transaction = 0;
};

// A sweeper's decision about an abandoned claim.
enum class OnAbandon { Unknown, Release, Fail };

// The error of a claim that the sweeper failed.
inline constexpr const char* kGivenUp = "abandoned: the lease expired and no caller took over";

// The rules of a scope.
struct Rules {
    Micros ttl = 0;
    Micros retention = 0;
    Micros lease = 0;
    int max_attempts = 0;
    bool unknown_on_expiry = false;
    bool closed = false;       // to every caller of the run
    Micros abandon_after = 0;  // the end of the lease; 0: never
    OnAbandon on_abandon = OnAbandon::Unknown;
    bool personal = false;  // requests and attempts are kept, with the principal's secrets
};

struct History {
    std::map<std::string, Rules> scopes;
    std::vector<Call> calls;  // each session's in order
    std::vector<Effect> effects;
    std::vector<Part> parts;
    std::vector<Look> looks;
    std::vector<Read> reads;
    std::vector<ForeignRow> foreign;
    std::vector<ShardMove> moves;
    // The standbys that took over at these moments may have lacked some commits.
    std::vector<Micros> forgetful_failovers;
    // Since when each timeline was that of a primary: see branches.hpp.
    std::map<int, Micros> takeovers;
    bool effects_known = true;  // false: they are not part of what is judged
    // idem_begin may have written rows of claims: their leases count from then.
    bool early_rows = false;
};

// Whether a primary was asked whose successor may lack its work.
inline bool before_last_forgetting(const History& history, const Call& call) {
    return !history.forgetful_failovers.empty() &&
           call.invoked < history.forgetful_failovers.back();
}

// Of Resolve: whether the decision allows another attempt.
inline bool runs_again(const std::string& action) {
    return action == "release" || action == "reopen";
}

const char* name_of(Function function);

// One JSON object per line: rules, effects, calls.
void save(const History& history, const std::string& file);
History load_history(const std::string& file);
std::string describe(const Call& call);

}  // namespace idem::chaos
