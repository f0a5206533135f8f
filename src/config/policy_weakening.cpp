// Only what a policy names is guarded: an option that it leaves open is the setting's. Where the
// change drops the policy, the next one that fits its scopes counts, or the settings.

#include "config/policy_weakening.hpp"

#include "config/policy_guard.hpp"
#include "config/settings.hpp"

namespace idem::config {

namespace {

using core::OptionType;

constexpr int column_of(const core::Safeguard& safeguard) {
    return core::policy_column(safeguard.option);
}

// An option that is none does not compile.
constexpr bool are_options() {
    for (const core::Safeguard& safeguard : core::kSafeguards)
        if (column_of(safeguard) >= kOptions) return false;
    return true;
}
static_assert(are_options());

struct Weakening {
    const char* option;
    const char* from;
    const char* to;
    const char* pattern;  // that of the policy in force
};

struct Weakenings {
    Weakening* items;
    int count;
};

core::Policy values_in(const PolicyRow* row) {
    return row == nullptr ? default_policy() : policy_of(given_in(*row));
}

std::size_t best_rank(const PolicyRows& policies, std::string_view pattern,
                      const PolicyRow* without) {
    std::size_t best = 0;
    for (const PolicyRow& row : policies)
        if (&row != without) best = Max(best, rank_for(row, pattern));
    return best;
}

// The policy that the scopes fall to without the one that has exactly this pattern; nullptr: none.
const PolicyRow* policy_below(const PolicyRows& policies, std::string_view pattern) {
    const PolicyRow* own = nullptr;
    for (const PolicyRow& row : policies)
        if (is_live(row, pattern)) own = &row;
    std::size_t best = best_rank(policies, pattern, own);
    for (const PolicyRow& row : policies)
        if (best > 0 && &row != own && rank_for(row, pattern) == best) return &row;
    return nullptr;
}

const char* role_in(const PolicyRow* row) {
    if (row == nullptr || row->nulls[kAllowedRole]) return nullptr;
    return NameStr(*DatumGetName(row->values[kAllowedRole]));
}

bool is_weakened(const core::Safeguard& safeguard, const PolicyRow& from, const PolicyRow* to) {
    if (from.nulls[column_of(safeguard)]) return false;
    if (safeguard.strength != nullptr)
        return core::weakens(safeguard, values_in(&from), values_in(to));
    const char* role = role_in(to);
    return role == nullptr || strcmp(role, role_in(&from)) != 0;
}

const char* text_of(const core::Safeguard& safeguard, const PolicyRow* row) {
    const core::PolicyColumn& column = core::kPolicyColumns[column_of(safeguard)];
    if (column.type == OptionType::Role) return role_in(row) == nullptr ? "none" : role_in(row);
    std::int64_t value = safeguard.strength(values_in(row));
    if (column.type == OptionType::Span)
        return DatumGetCString(
            DirectFunctionCall1(interval_out, IntervalPGetDatum(pg::interval_in_days(value))));
    if (column.type == OptionType::Flag) return value != 0 ? "true" : "false";
    std::string_view word = core::word_at(value, column.words);
    return pnstrdup(word.data(), word.size());
}

Weakenings weakenings_by(const PolicyRows& policies, std::string_view pattern,
                         const PolicyRow* next) {
    const PolicyRow* to = next != nullptr ? next : policy_below(policies, pattern);
    std::size_t best = best_rank(policies, pattern, nullptr);
    Weakenings result{};
    result.items = static_cast<Weakening*>(
        palloc(sizeof(Weakening) * (policies.count * std::size(core::kSafeguards) + 1)));
    for (const PolicyRow& row : policies) {
        if (best == 0 || rank_for(row, pattern) != best) continue;
        for (const core::Safeguard& safeguard : core::kSafeguards)
            if (is_weakened(safeguard, row, to))
                result.items[result.count++] = {
                    safeguard.option, text_of(safeguard, &row), text_of(safeguard, to),
                    pnstrdup(pattern_of(row).data(), pattern_of(row).size())};
    }
    return result;
}

[[noreturn]] void raise_without_reason(const Weakenings& weakenings) {
    StringInfoData list;
    initStringInfo(&list);
    for (int i = 0; i < weakenings.count; i++) {
        const Weakening& one = weakenings.items[i];
        appendStringInfo(&list, "%s%s of \"%s\" from %s to %s", i == 0 ? "" : ", ", one.option,
                         one.pattern, one.from, one.to);
    }
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("reason is required"),
                    errdetail("The change weakens %s.", list.data),
                    errhint("Say why with reason, which idempotency.audit keeps, or name these "
                            "options in the call.")));
    pg_unreachable();
}

}  // namespace

void check_weakening(const PolicyRows& policies, std::string_view pattern, const PolicyRow* next,
                     bool has_reason) {
    Weakenings weakenings = weakenings_by(policies, pattern, next);
    if (weakenings.count > 0 && !has_reason) raise_without_reason(weakenings);
    const char* changed = pnstrdup(pattern.data(), pattern.size());
    for (int i = 0; i < weakenings.count; i++) {
        const Weakening& one = weakenings.items[i];
        ereport(WARNING, (errmsg("the change of policy \"%s\" weakens %s from %s to %s", changed,
                                 one.option, one.from, one.to),
                          errdetail("Policy \"%s\" had the stronger value.", one.pattern)));
    }
}

}  // namespace idem::config
