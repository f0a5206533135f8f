// The outcomes of idem_begin, the statuses of a record, and an operator's resolutions. The tables
// here define everything about each: its word, its HTTP response, its counter, and whether it is
// logged as a problem. The compiler checks that each enumerator has its entry, at its place
// (outcome.cpp). A test compares them with the columns of SQL and the tables of the documentation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace idem::core {

// The counters of a scope, in the order of the columns of idempotency.scope_stats().
enum class Counter {
    Executed,
    Replayed,
    InProgress,
    Mismatches,
    Takeovers,
    Retries,
    RetryLater,
    Exhausted,
    Expired,
    Unknown,
    Completed,
    Failed,
    Waits,
    WaitMicros,
    Swept,
    Abandoned,
    EncryptionErrors,
    StoreErrors,
    Evicted,  // of the shared row: scopes that lost theirs
};

struct CounterEntry {
    Counter counter;
    std::string_view name;
};

inline constexpr CounterEntry kCounters[] = {
    {Counter::Executed, "executed"},
    {Counter::Replayed, "replayed"},
    {Counter::InProgress, "in_progress"},
    {Counter::Mismatches, "mismatches"},
    {Counter::Takeovers, "takeovers"},
    {Counter::Retries, "retries"},
    {Counter::RetryLater, "retry_later"},
    {Counter::Exhausted, "exhausted"},
    {Counter::Expired, "expired"},
    {Counter::Unknown, "unknown"},
    {Counter::Completed, "completed"},
    {Counter::Failed, "failed"},
    {Counter::Waits, "waits"},
    {Counter::WaitMicros, "wait_micros"},
    {Counter::Swept, "swept"},
    {Counter::Abandoned, "abandoned"},
    {Counter::EncryptionErrors, "encryption_errors"},
    {Counter::StoreErrors, "store_errors"},
    {Counter::Evicted, "evicted"},
};
inline constexpr int kCounterCount = std::size(kCounters);

constexpr const CounterEntry& entry_of(Counter counter) noexcept {
    return kCounters[static_cast<std::size_t>(counter)];
}

// How a request is refused over HTTP. Status codes and titles follow
// draft-ietf-httpapi-idempotency-key-header-07 (expired in April 2026), section 2.7, where it has any.
struct Problem {
    int http_status;
    std::string_view type;  // a relative URI reference, unique per problem
    std::string_view title;
    std::string_view detail;
};

// ---- outcomes ----

enum class Outcome {
    Execute,
    Replay,
    InProgress,
    Mismatch,
    Expired,
    RetryLater,
    Exhausted,
    Unknown,
};

struct OutcomeEntry {
    Outcome outcome;
    std::string_view word;
    Counter counter;
    bool is_problem;                 // an operator should look at it: log_events = problems
    std::optional<Problem> problem;  // none: the response is the request's own
};

inline constexpr OutcomeEntry kOutcomes[] = {
    {Outcome::Execute, "execute", Counter::Executed, false, std::nullopt},
    {Outcome::Replay, "replay", Counter::Replayed, false, std::nullopt},
    {Outcome::InProgress, "in_progress", Counter::InProgress, false,
     Problem{409, "/problems/idempotency/in-progress",
             "A request is outstanding for this Idempotency-Key",
             "The first request with this key is still being processed; repeat the same request "
             "later to get its answer."}},
    {Outcome::Mismatch, "mismatch", Counter::Mismatches, true,
     Problem{422, "/problems/idempotency/mismatch", "Idempotency-Key is already used",
             "This key belongs to a request with a different payload; use a new key for a new "
             "request."}},
    {Outcome::Expired, "expired", Counter::Expired, true,
     Problem{412, "/problems/idempotency/expired", "Idempotency-Key has expired",
             "The answer to this request is no longer kept; check whether the request took effect "
             "before sending it with a new key."}},
    {Outcome::RetryLater, "retry_later", Counter::RetryLater, false,
     Problem{503, "/problems/idempotency/retry-later",
             "The request failed and may be retried later",
             "The last attempt failed for a passing reason; repeat the same request with the same "
             "key after the time given in Retry-After."}},
    {Outcome::Exhausted, "exhausted", Counter::Exhausted, true,
     Problem{500, "/problems/idempotency/exhausted", "All attempts of the request have failed",
             "The request is not attempted again with this key; contact the operator of the "
             "service before sending it with a new one."}},
    {Outcome::Unknown, "unknown", Counter::Unknown, true,
     Problem{409, "/problems/idempotency/unknown", "The result of the request is not known",
             "The request may have taken effect, and its result is not known yet; repeat it later "
             "with the same key, and don't send it with a new key."}},
};

constexpr const OutcomeEntry& entry_of(Outcome outcome) noexcept {
    return kOutcomes[static_cast<std::size_t>(outcome)];
}

// ---- kinds of execution ----

// How a granted execution uses the row that it found.
enum class Execution : std::uint16_t {
    None,      // the outcome is not Execute
    First,     // no row: attempt 1
    Reuse,     // a row past its retention: attempt 1 in its place
    Takeover,  // lease expired: attempt + 1
    Retry,     // retryable and due: attempt + 1
};

struct ExecutionEntry {
    Execution execution;
    std::string_view word;           // of the log line
    std::optional<Counter> counter;  // besides that of the outcome
    bool is_problem;
};

inline constexpr ExecutionEntry kExecutions[] = {
    {Execution::None, "", std::nullopt, false},
    {Execution::First, "first", std::nullopt, false},
    {Execution::Reuse, "reuse", std::nullopt, false},
    {Execution::Takeover, "takeover", Counter::Takeovers, true},
    {Execution::Retry, "retry", Counter::Retries, false},
};

constexpr const ExecutionEntry& entry_of(Execution execution) noexcept {
    return kExecutions[static_cast<std::size_t>(execution)];
}

// ---- reasons ----

// The reason of an outcome: each decision names one, and idem_explain spells it out.
enum class Reason : std::uint16_t {
    NoRecord,
    RetentionOver,
    LeaseOver,
    SessionEnded,
    RetryDue,
    Answered,
    Leased,
    Held,
    OwnClaim,
    OtherRequest,
    TtlOver,
    SentBeforeClaim,
    SentBeforeMemory,
    Pause,
    AttemptsFailed,
    AttemptsTimedOut,
    TakeoverForbidden,
    OutcomeUnknown,
};

struct ReasonEntry {
    Reason reason;
    std::string_view word;
    Outcome outcome;
    std::string_view why;
    std::string_view next;  // what ends it, or follows
};

inline constexpr ReasonEntry kReasons[] = {
    {Reason::NoRecord, "no_record", Outcome::Execute, "There is no record of the key.",
     "The caller executes the first attempt."},
    {Reason::RetentionOver, "retention_over", Outcome::Execute,
     "The retention of the record has ended, so the key is new.",
     "The caller executes the first attempt of a new record."},
    {Reason::LeaseOver, "lease_over", Outcome::Execute,
     "The lease of the claim has expired without a result.",
     "The next caller takes over; the old token is void from then on."},
    {Reason::SessionEnded, "session_ended", Outcome::Execute,
     "The session of a claim with hold has ended without a result.",
     "The next caller takes over; the old token is void from then on."},
    {Reason::RetryDue, "retry_due", Outcome::Execute,
     "The last attempt failed, and its pause has ended.",
     "The next caller executes another attempt."},
    {Reason::Answered, "answered", Outcome::Replay,
     "The result is recorded, and its ttl has not ended.",
     "Every repeat gets this response until the ttl ends, then expired until the retention ends."},
    {Reason::Leased, "leased", Outcome::InProgress, "A committed claim has a live lease.",
     "Its holder records a result, or its lease expires."},
    {Reason::Held, "held", Outcome::InProgress,
     "Another transaction executes the key or decides about it, and has not ended.",
     "Its commit decides what repeats get; its rollback leaves the key unchanged."},
    {Reason::OwnClaim, "own_claim", Outcome::InProgress,
     "This transaction has an open claim on the key.",
     "idem_complete, idem_fail or idem_release end it. Otherwise it becomes leased at COMMIT, or "
     "COMMIT fails if the claim is transactional."},
    {Reason::OtherRequest, "other_request", Outcome::Mismatch,
     "The key belongs to a request with another fingerprint or another operation.",
     "A new request needs a new key."},
    {Reason::TtlOver, "ttl_over", Outcome::Expired,
     "The ttl of the record has ended, its retention has not.",
     "Every repeat is refused until the retention ends; then the key is new."},
    {Reason::SentBeforeClaim, "sent_before_claim", Outcome::Expired,
     "The retention of the record has ended, and the request was first sent before that record was "
     "claimed: the record may be its own.",
     "The key is new for a request that was first sent later."},
    {Reason::SentBeforeMemory, "sent_before_memory", Outcome::Expired,
     "The request was first sent longer ago than its key is remembered, so its record may have "
     "been removed.",
     "The key is new for a request that was first sent later."},
    {Reason::Pause, "pause", Outcome::RetryLater,
     "The last attempt failed, and its pause has not ended.",
     "After the pause the next caller executes another attempt."},
    {Reason::AttemptsFailed, "attempts_failed", Outcome::Exhausted,
     "The last attempt failed, and max_attempts is reached.",
     "An operator can decide with idem_resolve; the key is forgotten when the retention ends."},
    {Reason::AttemptsTimedOut, "attempts_timed_out", Outcome::Exhausted,
     "The last attempt timed out, and max_attempts is reached.",
     "Its holder may still record a result; an operator can decide with idem_resolve."},
    {Reason::TakeoverForbidden, "takeover_forbidden", Outcome::Unknown,
     "The claim timed out, and on_lease_expiry forbids a takeover, now or at the claim.",
     "Its holder may still record a result; an operator can decide with idem_resolve."},
    {Reason::OutcomeUnknown, "outcome_unknown", Outcome::Unknown,
     "The last attempt ended with idem_unknown: it may have taken effect.",
     "It ends with idem_complete or a final idem_fail by its token, or with idem_resolve; it does "
     "not expire."},
};

constexpr const ReasonEntry& entry_of(Reason reason) noexcept {
    return kReasons[static_cast<std::size_t>(reason)];
}

// ---- statuses of a record ----

// The status of a record in the table, one byte; the views spell it out.
enum class Status : char {
    InProgress = 'i',
    Completed = 'c',
    Failed = 'f',     // final, replayed
    Retryable = 'r',  // failed, may run again
    // Failed or silent with its attempts used up. Before a sweeper stores it, it follows from a
    // claim in progress whose lease expired. The holder of a silent one may still record the
    // result.
    Exhausted = 'x',
    // The holder said so, or its lease expired and the policy forbids to run again blindly. The
    // latter follows from a claim in progress and is never stored. The holder may still record the
    // result.
    Unknown = 'u',
};

// The status of a claim in progress once its lease expires. It is fixed at the claim: a forbidden
// attempt must not be allowed later, nor an allowed one forbidden.
enum class IfSilent : char { Takeover = 't', Unknown = 'u', Exhausted = 'x' };

// Records with a holder at work, or with a decision due; an index finds them.
inline constexpr std::string_view kOutstanding = "iux";

constexpr bool is_outstanding(Status status) noexcept {
    return kOutstanding.find(static_cast<char>(status)) != std::string_view::npos;
}

struct StatusEntry {
    Status status;
    std::string_view word;
    Outcome repeat;                  // of a repeat, as far as the status determines it
    std::optional<Counter> counter;  // of a result recorded with this status
};

inline constexpr StatusEntry kStatuses[] = {
    {Status::InProgress, "in_progress", Outcome::InProgress, std::nullopt},
    {Status::Completed, "completed", Outcome::Replay, Counter::Completed},
    {Status::Failed, "failed", Outcome::Replay, Counter::Failed},
    {Status::Retryable, "retryable", Outcome::RetryLater, Counter::Failed},
    {Status::Exhausted, "exhausted", Outcome::Exhausted, Counter::Failed},
    {Status::Unknown, "unknown", Outcome::Unknown, Counter::Failed},  // stays the last
};

// A byte that this library does not know is Unknown's.
constexpr const StatusEntry& entry_of(Status status) noexcept {
    for (const StatusEntry& entry : kStatuses) {
        if (entry.status == status) return entry;
    }
    return *(std::end(kStatuses) - 1);
}

// ---- what an operator decides ----

enum class Resolution { Release, Complete, Fail, Reopen };

struct ResolutionEntry {
    Resolution resolution;
    std::string_view word;
    Status status;  // of the record after it
};

inline constexpr ResolutionEntry kResolutions[] = {
    {Resolution::Release, "release", Status::Retryable},
    {Resolution::Complete, "complete", Status::Completed},
    {Resolution::Fail, "fail", Status::Failed},
    {Resolution::Reopen, "reopen", Status::Retryable},
};

constexpr const ResolutionEntry& entry_of(Resolution resolution) noexcept {
    return kResolutions[static_cast<std::size_t>(resolution)];
}

// ---- problems ----

// Problems that are not outcomes: of a request that never reaches idem_begin, and of a failed
// answer without a status code of its own.
struct WordProblem {
    std::string_view word;
    Problem problem;
};

inline constexpr WordProblem kOtherProblems[] = {
    {entry_of(Status::Failed).word,
     {500, "/problems/idempotency/failed", "The request has failed",
      "The request was attempted and failed for good; a repeat with this key gets the same "
      "answer."}},
    {"missing_key",
     {400, "/problems/idempotency/missing-key", "Idempotency-Key is missing",
      "This operation requires an Idempotency-Key header with a unique value for each new "
      "request."}},
    {"bad_key",
     {400, "/problems/idempotency/bad-key", "Idempotency-Key is malformed",
      "The Idempotency-Key header must be a quoted string or a bare value of 1 to 255 visible "
      "characters."}},
};

// A claim's own words; empty is null.
struct ClaimWords {
    std::string_view outcome;
    std::string_view status;
    bool has_status_code;
};

// The word by which problem_of finds the document of a claim: its outcome, or without one the
// outcome of a repeat by its status. 'failed' for a failed answer without a status code. May be
// empty.
std::string_view problem_word(const ClaimWords& claim) noexcept;

// The problem of an outcome word; also of 'missing_key' and 'bad_key', which no record has, and of
// 'failed'. nullptr where there is no problem (execute, replay) and for an unknown word; `known`
// tells these apart.
const Problem* problem_of(std::string_view outcome_word, bool* known) noexcept;

}  // namespace idem::core
