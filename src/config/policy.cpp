#include "config/policy.hpp"

#include "core/pattern.hpp"

#include "config/policy_check.hpp"
#include "config/policy_rows.hpp"
#include "config/settings.hpp"
#include "pg/datum.hpp"
#include "pg/errors.hpp"

namespace idem::config {

namespace {

// The rows as of the moment when `changes` had the value `as_of`.
struct Cache {
    bool loaded;
    std::uint64_t as_of;
    Oid table;
    MemoryContext context;
    PolicyRows policies;
    const char** unusable;  // of each row: the column that makes no sense, or nullptr
};
Cache cache;
std::uint64_t changes;
constexpr int kLooks = 3;  // then the next call looks again

void note_change(Datum, Oid table) {
    if (table == InvalidOid || table == cache.table) changes++;
}

const char** unusable_columns(const PolicyRows& policies) {
    auto result = static_cast<const char**>(
        MemoryContextAlloc(cache.context, sizeof(const char*) * (policies.count + 1)));
    for (std::size_t i = 0; i < policies.count; i++) result[i] = unusable_column(policies.rows[i]);
    return result;
}

void load() {
    if (cache.context == nullptr)
        cache.context =
            AllocSetContextCreate(CacheMemoryContext, "idempotency policies", ALLOCSET_SMALL_SIZES);
    cache.loaded = false;
    cache.as_of = changes;
    MemoryContextReset(cache.context);
    cache.table = pg::table_oid("policy");
    cache.policies = read_policies(cache.context);
    cache.unusable = unusable_columns(cache.policies);
    cache.loaded = true;
}

// A statement that finds its relations locked by its own transaction would not hear of changes that
// others have committed, so they are asked for. One that arrives while the rows are read makes us
// read them again: if the table was locked, they were read as of before the wait.
void refresh() {
    AcceptInvalidationMessages();
    for (int looks = 0; looks < kLooks && (!cache.loaded || cache.as_of != changes); looks++)
        load();
}

// The row that holds for the scope; an error if it can't be gone by: what was meant is not known,
// so the scope is closed. Two rows of one rank have the same pattern, which the primary key
// forbids.
const PolicyRow* best_row(std::string_view scope) {
    std::size_t best = 0;
    std::size_t best_rank = 0;
    const char* unusable = nullptr;
    for (std::size_t i = 0; i < cache.policies.count; i++) {
        const PolicyRow& row = cache.policies.rows[i];
        std::size_t rank = core::pattern_rank(core::pattern_reach(pattern_of(row)), scope);
        if (rank == 0 || rank < best_rank || is_dropped(row)) continue;
        unusable = rank > best_rank ? cache.unusable[i] : kPolicyColumnTypes[kPattern].name;
        best_rank = rank;
        best = i;
    }
    if (unusable != nullptr) pg::raise_policy_unusable(unusable);
    return best_rank == 0 ? nullptr : &cache.policies.rows[best];
}

ArrayType* array_at(const PolicyRow& row, PolicyColumn column) {
    return row.nulls[column] ? nullptr : DatumGetArrayTypePCopy(row.values[column]);
}

// By name, at every use: a role that does not exist admits nobody, not even a superuser, for a
// restore or a DROP ROLE must not open what was closed.
void check_role(const char* name) {
    Oid role = get_role_oid(name, true);
    if (!OidIsValid(role)) pg::raise_missing_role(name);
    if (!has_privs_of_role(GetUserId(), role)) pg::raise_role(name);
}

}  // namespace

ScopePolicy policy_for(std::string_view scope) {
    refresh();
    ScopePolicy result{default_policy(), nullptr, nullptr, nullptr};
    const PolicyRow* row = best_row(scope);
    if (row == nullptr) return result;
    if (!row->nulls[kAllowedRole]) check_role(NameStr(*DatumGetName(row->values[kAllowedRole])));
    result.values = values_of(*row);
    result.exclude_fields = array_at(*row, kExcludeFields);
    result.drop_headers = array_at(*row, kDropHeaders);
    result.final_errors = array_at(*row, kFinalErrors);
    return result;
}

std::int64_t memory_since(std::string_view scope, TimestampTz first_sent) {
    refresh();
    return core::memory_since(memory_of(cache.policies, core::pattern_rank, scope), first_sent);
}

void announce_policy_change() {
    CacheInvalidateRelcacheByRelid(pg::table_oid("policy"));
}

void watch_policy_changes() {
    CacheRegisterRelcacheCallback(note_change, 0);
}

}  // namespace idem::config
