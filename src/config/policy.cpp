// A backend reads all policies and keeps them until their table changes (pg::Watched). A row
// trigger, which subscribers fire as well, reports each change: it sends an invalidation of the
// table's relcache entry to all backends when its transaction commits
// (CacheInvalidateRelcacheByRelid). If one arrives while the rows are read, they are read again: if
// the table was locked, they may be from before the wait.

#include "config/policy.hpp"

#include "core/pattern.hpp"

#include "config/policy_change.hpp"
#include "config/settings.hpp"
#include "pg/installed.hpp"

namespace idem::config {

namespace {

// The facts that calls need of a row, unless it is the trace of a dropped policy.
struct Candidate {
    const PolicyRow* row;
    const char* unusable;  // the column that is invalid, or nullptr
    Given given;
};

struct Cache {
    MemoryContext context;
    PolicyRows policies;
    Candidate* candidates;
    core::Reach* reaches;  // in their order, of the candidates
    std::size_t count;     // of both
};
Cache cache;

// Two rows that reach equally far were written by hand: which one is meant is unknown.
void find_candidates() {
    std::size_t most = cache.policies.count + 1;
    cache.candidates =
        static_cast<Candidate*>(MemoryContextAlloc(cache.context, sizeof(Candidate) * most));
    cache.reaches =
        static_cast<core::Reach*>(MemoryContextAlloc(cache.context, sizeof(core::Reach) * most));
    cache.count = 0;
    for (const PolicyRow& row : cache.policies) {
        if (is_dropped(row)) continue;
        cache.candidates[cache.count] = {&row, unusable_column(row), given_in(row)};
        cache.reaches[cache.count] = {core::pattern_reach(pattern_of(row)), cache.count, false, 0};
        cache.count++;
    }
    core::order_reaches(cache.reaches, cache.count);
    for (std::size_t i = 0; i < cache.count; i++)
        if (cache.reaches[i].twice)
            cache.candidates[cache.reaches[i].owner].unusable = core::kPolicyColumns[kPattern].name;
}

void load(Oid) {
    if (cache.context == nullptr)
        cache.context =
            AllocSetContextCreate(CacheMemoryContext, "idempotency policies", ALLOCSET_SMALL_SIZES);
    MemoryContextReset(cache.context);
    cache.policies = read_policies(cache.context);
    find_candidates();
}

pg::Watched cached = {kPolicyTable, load};

[[noreturn]] void raise_unusable(const char* column) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("the policy of this scope is not valid"),
                    errdetail("idem_policy_set does not accept the value of its %s.", column),
                    errhint("Change it with idem_policy_alter, or drop it with "
                            "idem_policy_drop.")));
    pg_unreachable();
}

// The policy for the scope, or nullptr: the settings.
const Candidate* best_candidate(std::string_view scope) {
    std::size_t best = core::best_reach(cache.reaches, cache.count, scope);
    return best == core::kNoReach ? nullptr : &cache.candidates[cache.reaches[best].owner];
}

// An error if the row is invalid: its meaning is unknown, so the scope is closed.
const Candidate* usable_candidate(std::string_view scope) {
    const Candidate* best = best_candidate(scope);
    if (best != nullptr && best->unusable != nullptr) raise_unusable(best->unusable);
    return best;
}

// By name, at every use: a role that does not exist admits no user, not even a superuser. A restore
// or a DROP ROLE must not open a closed scope.
const char* role_not_held(const Candidate* best) {
    if (best == nullptr || best->row->nulls[kAllowedRole]) return nullptr;
    const char* name = NameStr(*DatumGetName(best->row->values[kAllowedRole]));
    Oid role = get_role_oid(name, true);
    return OidIsValid(role) && has_privs_of_role(GetUserId(), role) ? nullptr : name;
}

Closure closure_by(const Candidate* best) {
    if (best != nullptr && best->unusable != nullptr) return {nullptr, best->unusable};
    return {role_not_held(best), nullptr};
}

[[noreturn]] void raise_closed(const char* role) {
    if (!OidIsValid(get_role_oid(role, true)))
        ereport(
            ERROR,
            (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for this scope"),
             errdetail("Its policy admits only members of role \"%s\", which does not exist.",
                       role),
             errhint("Create the role, or name another one with idem_policy_alter.")));
    ereport(ERROR,
            (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for this scope"),
             errdetail("Its policy admits only members of role \"%s\".", role)));
    pg_unreachable();
}

ScopePolicy policy_by(const Candidate* best) {
    ScopePolicy result{};
    if (best == nullptr) {
        result.values = default_policy();
        return result;
    }
    const PolicyRow& row = *best->row;
    result.values = policy_of(best->given);
    for (const ListMember& list : kListMembers)
        if (!row.nulls[list.column])
            result.*list.member = DatumGetArrayTypePCopy(row.values[list.column]);
    if (!row.nulls[kErrorStatuses])
        result.error_statuses = DatumGetJsonbPCopy(row.values[kErrorStatuses]);
    return result;
}

}  // namespace

ScopePolicy policy_for(std::string_view scope) {
    pg::refresh(&cached);
    const Candidate* best = usable_candidate(scope);
    const char* role = role_not_held(best);
    if (role != nullptr) raise_closed(role);
    return policy_by(best);
}

std::optional<ScopePolicy> policy_if_open(std::string_view scope) {
    pg::refresh(&cached);
    const Candidate* best = best_candidate(scope);
    if (is_closed(closure_by(best))) return std::nullopt;
    return policy_by(best);
}

Closure closure_of(std::string_view scope) {
    pg::refresh(&cached);
    return closure_by(best_candidate(scope));
}

const PolicyRow* policy_row_for(std::string_view scope) {
    pg::refresh(&cached);
    const Candidate* best = usable_candidate(scope);
    return best == nullptr ? nullptr : best->row;
}

bool policy_ignoring_role(std::string_view scope, core::Policy* policy) {
    pg::refresh(&cached);
    const Candidate* best = best_candidate(scope);
    if (best != nullptr && best->unusable != nullptr) return false;
    *policy = best == nullptr ? default_policy() : policy_of(best->given);
    return true;
}

std::optional<std::int64_t> shortest_abandonment() {
    pg::refresh(&cached);
    std::optional<std::int64_t> shortest;
    for (std::size_t i = 0; i < cache.count; i++) {
        if (cache.candidates[i].unusable != nullptr) continue;
        core::Policy policy = policy_of(cache.candidates[i].given);
        if (policy.abandon_after == 0 && policy.max_attempts == 0) continue;
        shortest = Min(policy.abandon_after, shortest.value_or(policy.abandon_after));
    }
    return shortest;
}

std::int64_t memory_since(std::string_view scope, TimestampTz first_sent) {
    pg::refresh(&cached);
    return core::memory_since(memory_of(cache.policies, core::pattern_rank, scope), first_sent);
}

void announce_policy_change() {
    CacheInvalidateRelcacheByRelid(pg::table_oid(kPolicyTable));
}

void watch_policy_changes() {
    pg::watch(&cached);
}

}  // namespace idem::config
