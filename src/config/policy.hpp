// Policies: the rows of idempotency.policy, cached in each backend, and the one that holds for a
// scope.
#pragma once

#include "core/policy.hpp"

#include "pg/pg.hpp"

namespace idem::config {

struct PolicyRow;  // policy_table.hpp

// The options in force for a scope. Arrays and the map are nullptr where the policy leaves them
// open.
struct ScopePolicy {
    core::Policy values;
    ArrayType* fingerprint_fields;
    ArrayType* exclude_fields;
    ArrayType* drop_headers;
    ArrayType* final_errors;
    Jsonb* error_statuses;
};

// The columns that fill the arrays.
struct ListMember {
    int column;
    ArrayType* ScopePolicy::*member;
};
inline constexpr ListMember kListMembers[] = {
    {core::policy_column("fingerprint_fields"), &ScopePolicy::fingerprint_fields},
    {core::policy_column("exclude_fields"), &ScopePolicy::exclude_fields},
    {core::policy_column("drop_headers"), &ScopePolicy::drop_headers},
    {core::policy_column("final_errors"), &ScopePolicy::final_errors},
};

// The exact pattern's policy, else that of the longest prefix, else the settings. Arrays and the
// map are copies in the current memory context. An error (42501) if the policy names a role of
// which the current user is not a member, or that does not exist; another (55000) if the row is
// invalid.
ScopePolicy policy_for(std::string_view scope);

// Why a scope is closed to the current user, if it is.
struct Closure {
    const char* role;    // the role that does not exist, or that the user is not a member of
    const char* column;  // the column that is invalid: the scope is closed to every user
};

// The same for callers that skip scopes closed to the current user: nullopt instead of an error.
std::optional<ScopePolicy> policy_if_open(std::string_view scope);

// The names are the cache's, valid until the next call.
Closure closure_of(std::string_view scope);

inline bool is_closed(const Closure& closure) {
    return closure.role != nullptr || closure.column != nullptr;
}

// The row of that policy, for any user; nullptr: the settings hold. It is the cache's, valid until
// the next call. An error (55000) if the row is invalid.
const PolicyRow* policy_row_for(std::string_view scope);

// The same policy without a check of its role, for work that is not a user's. False if the row is
// invalid.
bool policy_ignoring_role(std::string_view scope, core::Policy* policy);

// The shortest time after its lease at which any policy abandons a claim, in microseconds:
// abandon_after, or 0 where max_attempts alone may exhaust it. None: no policy does.
std::optional<std::int64_t> shortest_abandonment();

// The shortest time for which keys of this scope have been remembered since then, by the policies,
// in microseconds. Arguments of calls or changed settings may have made it shorter.
std::int64_t memory_since(std::string_view scope, TimestampTz first_sent);

// Every backend drops its cache at its next statement; called by the trigger on the table.
void announce_policy_change();

// Called once, when the library is loaded.
void watch_policy_changes();

}  // namespace idem::config
