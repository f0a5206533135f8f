// The decision: from what is known of a key to what idem_begin answers. Pure, so that every
// row of its table can be tested without a server.
#pragma once

#include <cstdint>
#include <optional>

#include "core/outcome.hpp"
#include "core/time.hpp"

namespace idem::core {

enum class OnLeaseExpiry { Takeover, Unknown };

// A record as the decision sees it. Times are microseconds of one clock.
struct Known {
    Status status;
    int attempt;
    std::int64_t lease_until;      // in progress: silent until then; exhausted: it was silent
    std::int64_t next_attempt_at;  // retryable: not before then
    std::int64_t expires_at;       // end of the ttl
    std::int64_t retained_until;   // end of the retention
    bool holder_gone;              // the session that held it with `hold` has ended
    bool released_by_operator;     // retryable: one more attempt is allowed whatever the limit
    IfSilent if_silent;            // what the policy at its claim makes of it then
    bool same_fingerprint;         // false only if both fingerprints are known and differ
    std::int64_t claimed_at;       // of its last attempt
    bool derived;                  // the key was made of the request: forgotten by age alone
};

// What else a decision follows from.
struct Terms {
    std::int64_t now;
    std::int64_t memory;                     // the shortest a key can have had since first_sent
    std::optional<std::int64_t> first_sent;  // when the client first sent this request
    int max_attempts;                        // 0: no limit
    OnLeaseExpiry on_lease_expiry;
    std::int64_t unknown_retry_after;
};

struct Decision {
    Outcome outcome;
    Execution execution;
    Reason reason;
    std::int64_t retry_after;  // microseconds until asking again makes sense; 0: not known
};

// Whether the claim of a record in progress lives: its lease runs, and its holder is not gone.
// Nobody takes it over, and nobody may forget it.
bool lives(const Known& record, std::int64_t now) noexcept;

// What a record is. A claim that no longer lives and that nobody may take over, by the policy at
// the claim or by today's, is unknown or exhausted before any row says so.
Status status_at(const Known& record, const Terms& terms) noexcept;

// `record` is nullptr when there is none (or only another transaction's uncommitted one).
Decision decide(const Known* record, const Terms& terms) noexcept;

// How long a transaction takes is not known, so this is no more than a hint.
inline constexpr std::int64_t kTransactionHint = kSecond;

// What a caller is told while another transaction decides about the key.
inline constexpr Decision kDecidedElsewhere{Outcome::InProgress, Execution::None, Reason::Held,
                                            kTransactionHint};
// And the transaction that has claimed it itself: the same request, and another.
inline constexpr Decision kOwnClaim{Outcome::InProgress, Execution::None, Reason::OwnClaim,
                                    kTransactionHint};
inline constexpr Decision kOtherRequest{Outcome::Mismatch, Execution::None, Reason::OtherRequest,
                                        0};

}  // namespace idem::core
