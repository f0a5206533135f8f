// What of a response is kept.
#pragma once

#include "claim/finish.hpp"
#include "config/policy.hpp"

namespace idem::claim {

// Puts the response into the record: without the headers that the policy drops, and without a body
// over its limit if it says so, else that is an error (54000).
void keep_response(const Response& response, const config::ScopePolicy& policy,
                   store::Record* record);

// An error (54000) if a jsonb is over the limit.
void check_size(const char* what, const void* varlena, const core::Policy& policy);

}  // namespace idem::claim
