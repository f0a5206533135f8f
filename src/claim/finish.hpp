// The end of a claim: idem_complete, idem_fail, idem_release; and signs of life in between:
// idem_extend, idem_checkpoint.
#pragma once

#include "claim/open_claims.hpp"

namespace idem::claim {

// Which claim a call speaks of. Without a token: the one that this transaction has begun.
struct ClaimRef {
    const char* function;  // for error messages, such as "idem_complete()"
    store::Identity id;
    std::optional<std::int64_t> token;
};

// A response as the caller gave it; nullptr and nullopt are "none".
struct Response {
    std::optional<std::int32_t> status_code;
    bytea* body;
    Jsonb* headers;
};

struct Failure {
    text* error;
    bool retryable;
    std::optional<std::int64_t> retry_after;  // microseconds; by default the policy's backoff
};

// True if this call recorded the result, false if the same token had recorded one before. Errors:
// ID404, ID409, 22004 (token needed), 54000 (too large), 40001.
bool complete(const ClaimRef& ref, const Response& response, std::optional<std::int64_t> ttl);
bool fail(const ClaimRef& ref, const Response& response, const Failure& failure);

// Gives the claim back as if it had never been begun. False if it had ended before.
bool release(const ClaimRef& ref);

// The new end of the lease, counted from now.
TimestampTz extend(const ClaimRef& ref, std::optional<std::int64_t> lease);
TimestampTz checkpoint(const ClaimRef& ref, text* recovery_point, Jsonb* state,
                       std::optional<std::int64_t> lease);

// Completes an open claim of this transaction without a response.
void finish_silently(OpenClaim* claim);

}  // namespace idem::claim
