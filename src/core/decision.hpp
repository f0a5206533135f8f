// The outcome table: from what is known of a key to what idem_begin answers. Pure, so that every
// row of the table can be tested without a server.
#pragma once

#include <cstdint>
#include <optional>

namespace idem::core {

// How a record stands in the table, one byte; the views spell it out.
enum class Status : char {
    InProgress = 'i',
    Completed = 'c',
    Failed = 'f',     // final, replayed
    Retryable = 'r',  // failed, may run again
    // Lease ran out, and the policy forbids running again blindly. Follows from the others with
    // time, so it is never stored; a holder who comes late may still record the result.
    Unknown = 'u',
};

enum class Outcome {
    Execute,
    InProgress,
    Mismatch,
    Replay,
    RetryLater,
    Exhausted,
    Expired,
    Unknown,
};

// What an execution that was decided does with the row it found.
enum class Claim {
    None,      // the outcome is not Execute
    First,     // no row: attempt 1
    Reuse,     // a row past its retention: attempt 1 in its place
    Takeover,  // lease over: attempt + 1
    Retry,     // retryable and due: attempt + 1
};

enum class OnLeaseExpiry { Takeover, Unknown };

// A record as the decision sees it. Times are microseconds of one clock.
struct RecordFacts {
    Status status;
    int attempt;
    std::int64_t lease_until;      // in progress: silent until then
    std::int64_t next_attempt_at;  // retryable: not before then
    std::int64_t expires_at;       // end of the ttl
    std::int64_t retained_until;   // end of the retention
    bool holder_gone;              // the session that held it with `hold` has ended
    bool released_by_operator;     // retryable: one more attempt is allowed whatever the limit
    bool same_fingerprint;         // false only if both fingerprints are known and differ
    std::int64_t claimed_at;       // of its last attempt
};

struct Asked {
    std::int64_t now;
    std::int64_t memory;                     // the shortest a key can have had since first_sent
    std::optional<std::int64_t> first_sent;  // when the client first sent this request
    int max_attempts;                        // 0: no limit
    OnLeaseExpiry on_lease_expiry;
};

struct Decision {
    Outcome outcome;
    Claim claim;
    std::int64_t retry_after;  // microseconds until asking again makes sense; 0: not known
};

// `record` is nullptr when there is none (or only another transaction's uncommitted one).
Decision decide(const RecordFacts* record, const Asked& asked) noexcept;

// What a caller is told when another transaction holds the key's lock.
inline constexpr Decision kHeldElsewhere{Outcome::InProgress, Claim::None, 0};

}  // namespace idem::core
