// A pattern takes scopes from the most specific pattern around it, and gives them back when it is
// dropped. Of two prefixes, one contains the other or they share no scope. So a change affects
// scopes of one policy only: that of the pattern itself, or the one around it. Patterns that were
// written by hand count for the scopes that they reach (core::pattern_reach). Several may reach
// equally far: each is checked.

#include "config/policy_guard.hpp"

#include "core/pattern.hpp"

#include "config/settings.hpp"
#include "pg/installed.hpp"

namespace idem::config {

std::size_t rank_for(const PolicyRow& row, std::string_view pattern) {
    if (is_dropped(row)) return 0;
    return core::cover_rank(core::pattern_reach(pattern_of(row)), core::pattern_reach(pattern));
}

bool is_live(const PolicyRow& row, std::string_view pattern) {
    return pattern_of(row) == pattern && !is_dropped(row);
}

namespace {

constexpr int kEncrypt = core::policy_column("encrypt");

// The policies in force for the scopes of a pattern.
struct InForce {
    std::size_t rank;
    bool encrypts;
    bool names_role;
};

bool encrypts(const PolicyRow& row) {
    return row.nulls[kEncrypt] ? default_policy().encrypt : DatumGetBool(row.values[kEncrypt]);
}

// `dropped`: ignore the policy with this pattern.
InForce in_force(const PolicyRows& policies, std::string_view pattern, bool dropped) {
    InForce result{0, default_policy().encrypt, false};
    for (const PolicyRow& row : policies) {
        std::size_t rank = rank_for(row, pattern);
        if (rank == 0 || rank < result.rank || (dropped && is_live(row, pattern))) continue;
        bool equal = rank == result.rank;
        result = {rank, encrypts(row) || (equal && result.encrypts),
                  !row.nulls[kAllowedRole] || (equal && result.names_role)};
    }
    return result;
}

bool owns_policies() {
    HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(pg::table_oid(kPolicyTable)));
    if (!HeapTupleIsValid(tuple)) pg::raise_not_installed();
    Oid owner = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relowner;
    ReleaseSysCache(tuple);
    return has_privs_of_role(GetUserId(), owner);
}

bool is_member(const char* role) {
    Oid oid = get_role_oid(role, true);
    return OidIsValid(oid) && has_privs_of_role(GetUserId(), oid);
}

[[noreturn]] void raise_not_member(const char* role) {
    const char* missing = OidIsValid(get_role_oid(role, true)) ? "" : ", which does not exist";
    ereport(ERROR,
            (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
             errmsg("permission denied to change the policy of this scope"),
             errdetail("The policy in force admits only members of role \"%s\"%s.", role, missing),
             errhint("Ask a member of that role, or the owner of table idempotency.policy.")));
    pg_unreachable();
}

[[noreturn]] void raise_encrypted() {
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                    errmsg("permission denied to set encrypt or allowed_role of this scope"),
                    errdetail("The policy in force has encrypt and no allowed_role."),
                    errhint("Ask the owner of table idempotency.policy.")));
    pg_unreachable();
}

}  // namespace

void check_may_change(const PolicyRows& policies, std::string_view pattern, const PolicyRow* next) {
    if (owns_policies()) return;
    InForce now = in_force(policies, pattern, false);
    for (const PolicyRow& row : policies) {
        std::size_t rank = rank_for(row, pattern);
        if (rank == 0 || rank != now.rank || row.nulls[kAllowedRole]) continue;
        const char* role = NameStr(*DatumGetName(row.values[kAllowedRole]));
        if (!is_member(role)) raise_not_member(role);
    }
    bool will_encrypt =
        next != nullptr ? encrypts(*next) : in_force(policies, pattern, true).encrypts;
    // A user who could name a role could name one of their own, and end the encryption as its
    // member.
    bool will_name_role = next != nullptr && !next->nulls[kAllowedRole];
    if (now.encrypts && !now.names_role && (!will_encrypt || will_name_role)) raise_encrypted();
}

}  // namespace idem::config
