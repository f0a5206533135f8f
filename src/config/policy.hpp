// Policies: the rows of idempotency.policy, cached in each backend, and the one that holds for a
// scope.
#pragma once

#include "core/policy.hpp"

#include "pg/pg.hpp"

namespace idem::config {

struct PolicyRow;  // policy_table.hpp

// What holds for a scope. Arrays and the map are nullptr where the policy says nothing.
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
// which the current user is no member, or that does not exist; another (55000) if it can't be gone
// by.
ScopePolicy policy_for(std::string_view scope);

// What closes a scope to the current user, if anything does.
struct Closure {
    const char* role;    // who is no member of it, or which does not exist
    const char* column;  // by which the policy can't be gone: the scope is closed to everybody
};

// The same for who passes over scopes that are closed to the current user: nullopt instead of an
// error.
std::optional<ScopePolicy> policy_if_open(std::string_view scope);

// The names are the cache's, until the next question.
Closure closure_of(std::string_view scope);

inline bool is_closed(const Closure& closure) {
    return closure.role != nullptr || closure.column != nullptr;
}

// The row of that policy, whoever asks; nullptr: the settings hold. It is the cache's, until the
// next question. An error (55000) if it can't be gone by.
const PolicyRow* policy_row_for(std::string_view scope);

// The same policy for who acts in nobody's name: no role is asked for. False if it can't be gone
// by.
bool policy_ignoring_role(std::string_view scope, core::Policy* policy);

// How soon after its lease any policy has a claim given up, in microseconds: abandon_after, or at
// once where max_attempts alone may have it exhausted. None: no policy does.
std::optional<std::int64_t> shortest_abandonment();

// The shortest time for which keys of this scope have been remembered since then, as far as
// policies know, in microseconds. Arguments of calls may have made it shorter, and a change of the
// settings.
std::int64_t memory_since(std::string_view scope, TimestampTz first_sent);

// Forgets the cache of every backend, at their next statement; called by the trigger on the table.
void announce_policy_change();

// Called once, when the library is loaded.
void watch_policy_changes();

}  // namespace idem::config
