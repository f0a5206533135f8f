// What a record says when an attempt has ended: the result, how long it is kept, and what of a
// response. For those who end an attempt: its holder, an operator, or a
// sweeper.
#pragma once

#include "config/policy.hpp"
#include "store/record.hpp"

namespace idem::claim {

// A response as the caller gave it; nullptr and nullopt are "none".
struct Response {
    std::optional<std::int32_t> status_code;
    bytea* body;
    Jsonb* headers;
};

// Whether keep_response() takes it.
bool fits(const Response& response, const config::ScopePolicy& policy);

// Puts the response into the record: without the headers that the policy drops, and without a body
// over its limit if it says so, else that is an error (54000).
void keep_response(const Response& response, const config::ScopePolicy& policy,
                   store::Record* record);

// An error (54000) if the text of a jsonb is over the limit.
void check_size(const char* what, Jsonb* value, const core::Policy& policy);

// An error text as it is kept. It is for people to read, and recording a failure must not fail for
// its length.
text* clipped_error(text* error);

// Puts the result's status and time into the record. What a later attempt would need to go on is
// dropped from a final one.
void mark_ended(core::Status status, store::Record* record);

// What the policy at the claim allowed its result to be stays allowed, for its effect has happened.
void allow_as_claimed(const store::Record& record, core::Policy* policy);

// The ttl counts from the claim. If less than half of it would be left after `end` (the end of long
// work, or the next attempt's time), ttl and retention count from there instead: a client that
// waited for the answer must get it, and not be told to run the request again.
void keep_long_enough(TimestampTz end, store::Record* record);

// What has come half of the way is not forgotten by age: a retryable record with a recovery point
// stays until it goes on or is decided. Its times are infinite.
void keep_if_half_way(store::Record* record);

bool attempts_used_up(const core::Policy& policy, const store::Record& record);

// Whether silence makes the claim unknown, by the policy at the claim or by `policy`
// (core::status_at says the same of a record that is silent).
bool is_unknown_if_silent(const core::Policy& policy, const store::Record& record);

// A record that is exhausted is kept for its retention, which counts from its end; it is never
// expired before.
void keep_exhausted(const core::Policy& policy, store::Record* record);

// The last attempt was silent beyond its lease. Its token stays, so that its holder may still
// record a result, and so does the end of the lease, which says so.
void mark_silent(const core::Policy& policy, store::Record* record);

// A decision of another than its holder is a fresh answer, for which the policy speaks: the span
// between claim and expiry may have grown by an earlier end of the attempt.
void keep_as_fresh(const core::Policy& policy, store::Record* record);

}  // namespace idem::claim
