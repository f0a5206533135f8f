// Records that are due: retryable ones whose pause has ended, and claims whose lease has expired
// and that their policy lets another caller take over. Uses SQL with either store, like sweeping.
#pragma once

#include "store/record.hpp"

namespace idem::store {

// Scopes with retryable records or claims in progress on this node: the one of that name, or, for a
// pattern that ends in "*", all that begin like it. In the current memory context.
struct Scopes {
    text** names;
    int count;
};
Scopes active_scopes(std::string_view pattern);

// A name and the time since which it is due.
struct DueRecord {
    Identity id;
    TimestampTz since;
};

struct DueRecords {
    DueRecord* items;
    int count;
};

// The records of these scopes that are due at `now`, since later than `after`, oldest first:
// `limit` of them, if there are so many, and those that are due since the same moment as the last.
// A claim that names its backend counts as due: only its caller knows whether that lives. Reads the
// newest snapshot, of all tables of this node. In the current memory context.
DueRecords due_records(const Scopes& scopes, TimestampTz after, TimestampTz now, int limit);

// Records of a scope that are due by the policy of their claim, and of which the policy of now says
// the same: by status, attempt, and whether an operator has allowed one more attempt.
struct DueGroup {
    text* scope;
    core::Status status;
    int attempt;
    bool resolved;
    std::int64_t records;
    TimestampTz oldest;
};

// Those of a table of this node, by scope. In the current memory context.
DueGroup* due_groups(Oid table, TimestampTz now, int* count);

}  // namespace idem::store
