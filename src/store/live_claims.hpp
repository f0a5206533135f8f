// How many claims of a principal live in a scope. By SQL with either store: only policies with
// max_open_claims ask.
#pragma once

#include "store/record.hpp"

namespace idem::store {

// Committed claims with a lease, and this transaction's own that are written; at most `limit`.
// Reads the claims in progress of the table, by their index.
std::int64_t live_claims(const Identity& of, std::int64_t limit);

}  // namespace idem::store
