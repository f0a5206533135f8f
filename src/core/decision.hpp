// The decision: from the record of a key to the answer of idem_begin. Pure, so that tests check
// every row of its table without a server.
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
    std::int64_t lease_until;  // in progress: the lease ends then; exhausted: the lease ended then
    std::int64_t next_attempt_at;  // retryable: not before then
    std::int64_t expires_at;       // end of the ttl
    std::int64_t retained_until;   // end of the retention
    bool holder_gone;              // the session that held it with `hold` has ended
    bool released_by_operator;     // retryable: one more attempt is allowed whatever the limit
    IfSilent if_silent;            // the policy at its claim: what the record becomes then
    bool same_fingerprint;         // false only if both fingerprints are known and differ
    std::int64_t claimed_at;       // of its last attempt
    bool derived;                  // the key was made of the request: forgotten by age alone
};

// The other inputs of a decision.
struct Terms {
    std::int64_t now;
    std::int64_t memory;  // the shortest time the key can have been remembered since first_sent
    std::optional<std::int64_t> first_sent;  // when the client first sent this request
    int max_attempts;                        // 0: no limit
    OnLeaseExpiry on_lease_expiry;
    std::int64_t unknown_retry_after;
};

struct Decision {
    Outcome outcome;
    Execution execution;
    Reason reason;
    std::int64_t retry_after;  // microseconds until the client should ask again; 0: not known
};

// Whether the claim of a record in progress lives: its lease runs, and its holder is not gone. Such
// a claim is neither taken over nor removed.
bool lives(const Known& record, std::int64_t now) noexcept;

// The status of a record. The policy at the claim or today's may forbid to take over a claim that
// no longer lives. Such a record is unknown or exhausted before any row says so.
Status status_at(const Known& record, const Terms& terms) noexcept;

// `record` is nullptr when there is none (or only another transaction's uncommitted one).
Decision decide(const Known* record, const Terms& terms) noexcept;

// A hint only: the duration of a transaction is not known.
inline constexpr std::int64_t kTransactionHint = kSecond;

// The answer while another transaction decides about the key.
inline constexpr Decision kDecidedElsewhere{Outcome::InProgress, Execution::None, Reason::Held,
                                            kTransactionHint};
// The answers to the transaction that claimed the key itself: for the same request, and for
// another.
inline constexpr Decision kOwnClaim{Outcome::InProgress, Execution::None, Reason::OwnClaim,
                                    kTransactionHint};
inline constexpr Decision kOtherRequest{Outcome::Mismatch, Execution::None, Reason::OtherRequest,
                                        0};

}  // namespace idem::core
