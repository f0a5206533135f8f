// What of a response is kept.
#pragma once

#include "claim/finish.hpp"
#include "config/policy.hpp"

namespace idem::claim {

// Puts the response into the record: without the headers that the policy drops, and without a body
// over its limit if it says so, else that is an error (54000).
void keep_response(const Response& response, const config::ScopePolicy& policy,
                   store::Record* record);

// An error (54000) if the text of a jsonb is over the limit.
void check_size(const char* what, Jsonb* value, const core::Policy& policy);

// An error text as it is kept. It is for people to read, and recording a failure must not fail for
// its length.
text* clipped_error(text* error);

}  // namespace idem::claim
