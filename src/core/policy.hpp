// The fields of a policy, their limits, and how long keys are remembered.
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>

#include "core/decision.hpp"
#include "core/fingerprint.hpp"
#include "core/header.hpp"
#include "core/sqlstate.hpp"
#include "core/time.hpp"

namespace idem::core {

enum class OnLargeBody { Error, Omit };
enum class OnMissingKey { Generate, Derive, Error };
enum class RetryJitter { Full, None };
enum class OnAbandon { Fail, Release, Unknown };

// A bytea's text form is twice as long, and a value must stay below 1 GB.
inline constexpr std::int64_t kLargestBody = 256LL * 1024 * 1024;

inline constexpr std::int64_t kUncapped = INT64_MAX;

// Defaults where neither a policy nor a setting (config/settings.hpp) gives a value. Spans are
// microseconds.
struct Policy {
    std::int64_t ttl = 0;
    std::int64_t retention = 0;  // at least ttl
    std::int64_t max_ttl = kUncapped;
    std::int64_t lease = 0;
    std::int64_t max_lease = kUncapped;
    std::int64_t wait = 0;
    int max_attempts = 0;  // 0: no limit
    std::int64_t retry_base = kSecond;
    std::int64_t retry_cap = 300 * kSecond;
    RetryJitter retry_jitter = RetryJitter::Full;
    OnMissingKey on_missing_key = OnMissingKey::Generate;
    std::int64_t derive_window = 0;  // 0: the ttl
    bool principal_required = false;
    bool fingerprint_required = false;
    bool store_request = false;
    bool keep_history = false;
    OnLeaseExpiry on_lease_expiry = OnLeaseExpiry::Takeover;
    std::int64_t unknown_retry_after = 60 * kSecond;
    std::int64_t abandon_after = 0;  // 0: never
    OnAbandon on_abandon = OnAbandon::Unknown;
    std::int64_t max_body_bytes = 0;
    OnLargeBody on_large_body = OnLargeBody::Error;
    bool encrypt = false;
    bool transactional_only = false;
    bool reason_required = false;
    int max_open_claims = 0;  // of a principal; 0: no limit
};

// ---- the table idempotency.policy ----

// In the order in which faults of a row are reported; the last three have none.
enum class OptionType {
    Pattern,
    Span,
    Number,
    Word,
    List,
    Map,
    Flag,
    Role,
    Moment,
};

inline constexpr const char* kOnAbandonWords = "fail, release, unknown";

// The error text for a value that does not fit.
struct Complaint {
    const char* detail;
    const char* hint;
};

struct PolicyColumn {
    const char* name;
    OptionType type;
    // Puts the value into its member of Policy: microseconds, a number, 0 or 1, the place of a
    // word. nullptr: it has no member.
    void (*put)(Policy* policy, std::int64_t value) noexcept = nullptr;
    std::int64_t (*get)(const Policy& policy) noexcept = nullptr;  // the reverse
    SpanRange range{};                                             // of a Span
    std::int64_t least = 0;  // of a Number; of a List: its fewest elements
    std::int64_t most = 0;
    const char* words = nullptr;                        // of a Word, in the order of its type
    bool (*fits)(std::string_view) noexcept = nullptr;  // of each element of a List
    Complaint complaint{};                              // about an element, or too few; about a Map
};

template <auto Member>
void put_member(Policy* policy, std::int64_t value) noexcept {
    policy->*Member = static_cast<std::decay_t<decltype(policy->*Member)>>(value);
}

template <auto Member>
std::int64_t get_member(const Policy& policy) noexcept {
    return static_cast<std::int64_t>(policy.*Member);
}

template <auto Member>
constexpr PolicyColumn span_option(const char* name, SpanRange range) noexcept {
    return {name, OptionType::Span, put_member<Member>, get_member<Member>, range};
}

template <auto Member>
constexpr PolicyColumn number_option(const char* name, std::int64_t least,
                                     std::int64_t most) noexcept {
    return {name, OptionType::Number, put_member<Member>, get_member<Member>, {}, least, most};
}

template <auto Member>
constexpr PolicyColumn flag_option(const char* name) noexcept {
    return {name, OptionType::Flag, put_member<Member>, get_member<Member>};
}

template <auto Member>
constexpr PolicyColumn word_option(const char* name, const char* words) noexcept {
    return {name, OptionType::Word, put_member<Member>, get_member<Member>, {}, 0, 0, words};
}

constexpr PolicyColumn list_option(const char* name, bool (*fits)(std::string_view) noexcept,
                                   Complaint complaint, std::int64_t least = 0) noexcept {
    return {name, OptionType::List, nullptr, nullptr, {}, least, 0, nullptr, fits, complaint};
}

constexpr PolicyColumn map_option(const char* name, Complaint complaint) noexcept {
    return {name, OptionType::Map, nullptr, nullptr, {}, 0, 0, nullptr, nullptr, complaint};
}

// Those up to "since" are the options: the arguments of idem_policy_set, in this order. An option
// may be null, which leaves it open; "pattern" and "dropped" may not.
inline constexpr PolicyColumn kPolicyColumns[] = {
    {"scope_pattern", OptionType::Pattern},
    span_option<&Policy::ttl>("ttl", kTtlRange),
    span_option<&Policy::retention>("retention", kRetentionRange),
    span_option<&Policy::max_ttl>("max_ttl", kTtlRange),
    span_option<&Policy::lease>("lease", kLeaseRange),
    span_option<&Policy::max_lease>("max_lease", kLeaseRange),
    span_option<&Policy::wait>("wait", kWaitRange),
    number_option<&Policy::max_attempts>("max_attempts", 1, INT32_MAX),
    span_option<&Policy::retry_base>("retry_base", kRetryRange),
    span_option<&Policy::retry_cap>("retry_cap", kRetryRange),
    word_option<&Policy::retry_jitter>("retry_jitter", "full, none"),
    word_option<&Policy::on_missing_key>("on_missing_key", "generate, derive, error"),
    span_option<&Policy::derive_window>("derive_window", kTtlRange),
    flag_option<&Policy::principal_required>("principal_required"),
    flag_option<&Policy::fingerprint_required>("fingerprint_required"),
    flag_option<&Policy::store_request>("store_request"),
    word_option<&Policy::on_lease_expiry>("on_lease_expiry", "takeover, unknown"),
    span_option<&Policy::unknown_retry_after>("unknown_retry_after", kLeaseRange),
    span_option<&Policy::abandon_after>("abandon_after", kLeaseRange),
    word_option<&Policy::on_abandon>("on_abandon", kOnAbandonWords),
    number_option<&Policy::max_body_bytes>("max_body_bytes", 0, kLargestBody),
    word_option<&Policy::on_large_body>("on_large_body", "error, omit"),
    // request/fingerprint.hpp reports an entry that is not a field.
    list_option(
        "fingerprint_fields", valid_exclude,
        {"It is empty, so all requests would be the same.", "Unset it to let every field count."},
        1),
    list_option("exclude_fields", valid_exclude, {}),
    list_option("drop_headers", is_header_name,
                {kNoHeaderName, "List names such as \"Set-Cookie\"."}),
    list_option("final_errors", may_be_final,
                {"An entry is not a SQLSTATE or a class of SQLSTATEs, or is in class 40, 53, 57, "
                 "58 or XX, which requests do not cause.",
                 "List entries such as \"22\" or \"P0002\"."}),
    map_option("error_statuses",
               {"It is not an object, or a member is not a SQLSTATE or a class of SQLSTATEs, or is "
                "in class 40, 53, 57, 58 or XX, or its value is not a status from 400 to 599.",
                "Write members such as \"P0001\": 402."}),
    {"allowed_role", OptionType::Role},
    flag_option<&Policy::keep_history>("keep_history"),
    flag_option<&Policy::encrypt>("encrypt"),
    flag_option<&Policy::transactional_only>("transactional_only"),
    flag_option<&Policy::reason_required>("reason_required"),
    number_option<&Policy::max_open_claims>("max_open_claims", 1, INT32_MAX),
    // The memory before the row's last change.
    {"since", OptionType::Moment},
    {"memory_before", OptionType::Span, nullptr, nullptr, kRetentionRange},
    {"dropped", OptionType::Flag},
};

inline constexpr int kPolicyColumnCount = std::size(kPolicyColumns);

// The place of a column. A missing column does not compile: the result is then not a constant.
constexpr int policy_column(std::string_view name) noexcept {
    int place = 0;
    while (kPolicyColumns[place].name != name) ++place;
    return place;
}

// An option whose weakening is a decision: a change that protects less needs a reason.
struct Safeguard {
    const char* option;
    // More protects more. nullptr: any other value protects less (the role, which Policy lacks).
    std::int64_t (*strength)(const Policy& policy) noexcept;
};

// How long keys are remembered.
inline std::int64_t span_of(const Policy& policy) noexcept {
    return policy.ttl > policy.retention ? policy.ttl : policy.retention;
}

inline constexpr Safeguard kSafeguards[] = {
    {"retention", span_of},
    {"principal_required", get_member<&Policy::principal_required>},
    {"on_lease_expiry", get_member<&Policy::on_lease_expiry>},
    {"allowed_role", nullptr},
    {"encrypt", get_member<&Policy::encrypt>},
    {"transactional_only", get_member<&Policy::transactional_only>},
    {"reason_required", get_member<&Policy::reason_required>},
};

// Whether the option protects less after a change.
inline bool weakens(const Safeguard& safeguard, const Policy& from, const Policy& to) noexcept {
    return safeguard.strength != nullptr && safeguard.strength(to) < safeguard.strength(from);
}

// Which of two spans, if left open, is never out of order with the other.
enum class Follows { Neither, Longer, Either };

// Two spans of a row, the first at most as long as the second: the columns, and the default where
// the row leaves one open.
struct SpansInOrder {
    int shorter;
    int longer;
    std::int64_t Policy::*shorter_value;
    std::int64_t Policy::*longer_value;
    Follows follows;
    const char* blamed;
    Complaint complaint;
};

inline constexpr SpansInOrder kSpansInOrder[] = {
    {policy_column("ttl"),
     policy_column("retention"),
     &Policy::ttl,
     &Policy::retention,
     Follows::Longer,
     "retention",
     {"It is shorter than the ttl.",
      "A key must be remembered at least as long as its answer is replayed."}},
    {policy_column("retry_base"),
     policy_column("retry_cap"),
     &Policy::retry_base,
     &Policy::retry_cap,
     Follows::Neither,
     "retry_base",
     {"It is longer than retry_cap.", "The pause after the first attempt is the shortest one."}},
    {policy_column("ttl"),
     policy_column("max_ttl"),
     &Policy::ttl,
     &Policy::max_ttl,
     Follows::Either,
     "ttl",
     {"It is longer than max_ttl.", "max_ttl is the longest ttl."}},
    {policy_column("lease"),
     policy_column("max_lease"),
     &Policy::lease,
     &Policy::max_lease,
     Follows::Either,
     "lease",
     {"It is longer than max_lease.", "max_lease is the longest lease."}},
};

// The place of a word in a list separated by ", "; -1: not in it.
int place_of_word(std::string_view word, std::string_view words) noexcept;

// The word at a place; empty: there is none.
std::string_view word_at(std::int64_t place, std::string_view words) noexcept;

// ---- memory: how long keys are remembered, and have been ----

// A request that says when it was first sent is judged by it. Microseconds; moments of one clock.
// Before `since` keys may have been remembered for as short as `before`. kUnchanged: always for
// `span`.
struct Memory {
    std::int64_t span;
    std::int64_t since;
    std::int64_t before;
};

inline constexpr std::int64_t kUnchanged = INT64_MIN;

// A change counts from that much later: its transaction takes time to commit, and until then other
// sessions use the previous policy.
inline constexpr std::int64_t kTimeToCommit = 60'000'000;

constexpr Memory unchanged_memory(std::int64_t span) noexcept {
    return {span, kUnchanged, span};
}

// The shortest memory that the key of a request can have had since it was first sent.
std::int64_t memory_since(const Memory& memory, std::int64_t first_sent) noexcept;

// False once every request sent before the change is refused for its age alone.
bool past_matters(const Memory& memory, std::int64_t now) noexcept;

// Combined with another record of the past.
Memory with_past(const Memory& memory, const Memory& other) noexcept;

// The memory after a change to `span` at `now`.
Memory changed_memory(const Memory& old, std::int64_t span, std::int64_t now) noexcept;

}  // namespace idem::core
