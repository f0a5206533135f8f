#include "core/decision.hpp"

#include <limits>

namespace idem::core {
namespace {

// Timestamps may be infinite, which is the end of int64. A difference saturates: wrapping around
// would give the opposite answer.
constexpr std::int64_t minus(std::int64_t a, std::int64_t b) noexcept {
    std::int64_t difference = 0;
    if (!__builtin_sub_overflow(a, b, &difference)) return difference;
    using Limits = std::numeric_limits<std::int64_t>;
    return b > 0 ? Limits::min() : Limits::max();
}

constexpr Decision refuse(Reason reason, std::int64_t retry_after = 0) noexcept {
    return {entry_of(reason).outcome, Execution::None, reason, retry_after};
}

constexpr Decision execute(Execution execution, Reason reason) noexcept {
    return {Outcome::Execute, execution, reason, 0};
}

// There is no record of the key, or none that still counts. A request first sent before our memory
// begins is refused: it may have had its effect under a record that was removed.
constexpr Decision begin_anew(const Terms& terms, Execution execution, Reason reason) noexcept {
    if (terms.first_sent && *terms.first_sent < minus(terms.now, terms.memory)) {
        return refuse(Reason::SentBeforeMemory);
    }
    return execute(execution, reason);
}

// A key belongs to its payload until the ttl ends, and as long as its record has no final answer:
// another payload must not continue from this one's recovery point.
constexpr bool bound_to_payload(const Known& record, std::int64_t now) noexcept {
    return now < record.expires_at || record.status == Status::InProgress ||
           record.status == Status::Unknown;
}

// Counts attempts that never ended, too: a request that kills its worker must not run for ever.
constexpr bool attempts_used_up(const Known& record, const Terms& terms) noexcept {
    return terms.max_attempts > 0 && record.attempt >= terms.max_attempts;
}

// The record is past its retention.
constexpr Decision begin_after(const Known& record, const Terms& terms) noexcept {
    // A request sent before this record was claimed may be the record's own request.
    if (terms.first_sent && *terms.first_sent <= record.claimed_at) {
        return refuse(Reason::SentBeforeClaim);
    }
    return begin_anew(terms, Execution::Reuse, Reason::RetentionOver);
}

// After its window a derived key stands for another request, which starts anew instead of taking
// over.
Decision decide_in_progress(const Known& record, const Terms& terms) noexcept {
    if (lives(record, terms.now)) {
        return refuse(Reason::Leased, minus(record.lease_until, terms.now));
    }
    if (record.derived && terms.now >= record.retained_until) return begin_after(record, terms);
    return execute(Execution::Takeover,
                   terms.now < record.lease_until ? Reason::SessionEnded : Reason::LeaseOver);
}

constexpr Decision decide_retryable(const Known& record, const Terms& terms) noexcept {
    if (attempts_used_up(record, terms) && !record.released_by_operator) {
        return refuse(Reason::AttemptsFailed);
    }
    if (terms.now < record.next_attempt_at) {
        return refuse(Reason::Pause, minus(record.next_attempt_at, terms.now));
    }
    return execute(Execution::Retry, Reason::RetryDue);
}

// The answer to a repeat while the result is kept.
constexpr Decision decide_kept(const Known& record, const Terms& terms) noexcept {
    if (record.status == Status::Retryable) return decide_retryable(record, terms);
    if (record.status != Status::Exhausted) return refuse(Reason::Answered);
    return refuse(record.lease_until > 0 ? Reason::AttemptsTimedOut : Reason::AttemptsFailed);
}

// The ttl is checked before the retention: if a retention ended first, the answer would still be
// replayed and not run again.
constexpr Decision decide_finished(const Known& record, const Terms& terms) noexcept {
    if (terms.now < record.expires_at) return decide_kept(record, terms);
    if (terms.now < record.retained_until) return refuse(Reason::TtlOver);
    return begin_after(record, terms);
}

}  // namespace

bool lives(const Known& record, std::int64_t now) noexcept {
    return now < record.lease_until && !record.holder_gone;
}

Status status_at(const Known& record, const Terms& terms) noexcept {
    if (record.status != Status::InProgress || lives(record, terms.now)) return record.status;
    bool forbidden = record.if_silent == IfSilent::Unknown;
    if (forbidden || terms.on_lease_expiry == OnLeaseExpiry::Unknown) return Status::Unknown;
    bool forgotten = record.derived && terms.now >= record.retained_until;
    bool used_up = record.if_silent == IfSilent::Exhausted || attempts_used_up(record, terms);
    return used_up && !forgotten ? Status::Exhausted : Status::InProgress;
}

Decision decide(const Known* record, const Terms& terms) noexcept {
    if (record == nullptr) return begin_anew(terms, Execution::First, Reason::NoRecord);
    if (!record->same_fingerprint && bound_to_payload(*record, terms.now)) {
        return refuse(Reason::OtherRequest);
    }
    switch (status_at(*record, terms)) {
        case Status::InProgress:
            return decide_in_progress(*record, terms);
        case Status::Completed:
        case Status::Failed:
        case Status::Retryable:
            return decide_finished(*record, terms);
        case Status::Exhausted:
            if (record->status == Status::InProgress) return refuse(Reason::AttemptsTimedOut);
            return decide_finished(*record, terms);
        case Status::Unknown:
            break;
    }
    if (record->status == Status::Unknown)
        return refuse(Reason::OutcomeUnknown, terms.unknown_retry_after);
    // Also for a status byte that this library does not know: such a record is never run again.
    return refuse(Reason::TakeoverForbidden, terms.unknown_retry_after);
}

}  // namespace idem::core
