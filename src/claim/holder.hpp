// What the holder of a claim does to it: ends it with idem_complete, idem_fail or idem_release, and
// gives signs of life in between, with idem_extend and idem_checkpoint.
#pragma once

#include "claim/open_claims.hpp"
#include "claim/result.hpp"

namespace idem::claim {

// Which claim a call speaks of. Without a token: the one that this transaction has begun.
struct ClaimRef {
    const char* function;  // for error messages, such as "idem_complete()"
    store::Identity id;
    std::optional<std::int64_t> token;
};

struct Failure {
    text* error;
    bool retryable;
    std::optional<std::int64_t> retry_after;  // microseconds; by default the policy's backoff
    bool uncertain;  // the work may have had its effect: unknown where silence would be
};

// True if this call recorded the result, false if the same token had recorded one before. Errors:
// ID404, ID409, 22004 (token needed), 54000 (too large), 40001.
bool complete(const ClaimRef& ref, const Response& response, std::optional<std::int64_t> ttl);
bool fail(const ClaimRef& ref, const Response& response, const Failure& failure);

// Ends an attempt whose outcome is not known. True likewise; false also if the attempt was unknown
// before.
bool end_unknown(const ClaimRef& ref, text* error, text* reference);

// Gives the claim back as if it had never been begun. False if it had ended before.
bool release(const ClaimRef& ref);

// The new end of the lease, counted from now.
TimestampTz extend(const ClaimRef& ref, std::optional<std::int64_t> lease);
TimestampTz checkpoint(const ClaimRef& ref, text* recovery_point, Jsonb* state,
                       std::optional<std::int64_t> lease);

// No writing where nothing can be written, and the policy of the scope decides who may and what
// holds: every call on a claim begins like this.
config::ScopePolicy enter(const ClaimRef& ref);

// For a key without a claim, or without a record (ID404).
[[noreturn]] void raise_no_claim();

// Completes an open claim of this transaction without a response.
void finish_silently(OpenClaim* claim, const core::Policy& policy);

// The two parts of that, for a claim that is written with its end.
void mark_completed(store::Record* record);
void account_for_completed(const core::Policy& policy, const store::Record& record);

}  // namespace idem::claim
