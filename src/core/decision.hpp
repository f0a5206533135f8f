// The decision: from what is known of a key to what idem_begin answers. Pure, so that every
// row of its table can be tested without a server.
#pragma once

#include <cstdint>
#include <optional>

#include "core/outcome.hpp"

namespace idem::core {

enum class OnLeaseExpiry { Takeover, Unknown };

// A record as the decision sees it. Times are microseconds of one clock.
struct Known {
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

// What else a decision follows from.
struct Terms {
    std::int64_t now;
    std::int64_t memory;                     // the shortest a key can have had since first_sent
    std::optional<std::int64_t> first_sent;  // when the client first sent this request
    int max_attempts;                        // 0: no limit
    OnLeaseExpiry on_lease_expiry;
};

struct Decision {
    Outcome outcome;
    Execution execution;
    std::int64_t retry_after;  // microseconds until asking again makes sense; 0: not known
};

// `record` is nullptr when there is none (or only another transaction's uncommitted one).
Decision decide(const Known* record, const Terms& terms) noexcept;

// What a caller is told when another transaction holds the key's lock.
inline constexpr Decision kHeldElsewhere{Outcome::InProgress, Execution::None, 0};

}  // namespace idem::core
