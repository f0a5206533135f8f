// A change of a policy counts from now on, but the previous memory still decides about requests
// under way: a request first sent when keys were remembered for a day must not be judged by a year.
// So each change records the previous memory and when it ended (core::Memory). A dropped policy
// leaves a row with only that, until it no longer matters.
//
// Changes wait for each other (ShareRowExclusiveLock, as CREATE TRIGGER takes it); readers do not
// wait.

#include "config/policy_change.hpp"

#include "core/pattern.hpp"

#include "config/policy_guard.hpp"
#include "config/policy_weakening.hpp"
#include "config/settings.hpp"
#include "pg/datum.hpp"
#include "pg/installed.hpp"

namespace idem::config {

namespace {

// An unreadable value may have been any, so it counts as the shortest: while it stands there, no
// claim is made under it.
constexpr std::int64_t kLeast = 1;

// Of one row alone.
core::Memory memory_of_row(const PolicyRow& row) {
    if (unusable_column(row) != nullptr) return {kLeast, PG_INT64_MAX, kLeast};
    std::int64_t span = core::span_of(policy_of(given_in(row)));
    if (row.nulls[kSince]) return core::unchanged_memory(span);
    return {span, DatumGetTimestampTz(row.values[kSince]),
            pg::micros_of(DatumGetIntervalP(row.values[kMemoryBefore]))};
}

const PolicyRow* live_row(const PolicyRows& policies, std::string_view pattern) {
    for (const PolicyRow& row : policies)
        if (pattern_of(row) == pattern && !is_dropped(row)) return &row;
    return nullptr;
}

void set_past(const core::Memory& memory, PolicyRow* row) {
    bool none = memory.since == core::kUnchanged;
    row->nulls[kSince] = none;
    row->nulls[kMemoryBefore] = none;
    if (none) return;
    row->values[kSince] = TimestampTzGetDatum(memory.since);
    row->values[kMemoryBefore] = IntervalPGetDatum(pg::interval_in_days(memory.before));
}

void mark_dropped(bool dropped, PolicyRow* row) {
    row->nulls[kDropped] = false;
    row->values[kDropped] = BoolGetDatum(dropped);
}

// A row that keeps only the former memory.
PolicyRow only_past(Datum pattern, const core::Memory& memory) {
    PolicyRow row{};
    for (bool& null : row.nulls) null = true;
    row.values[kPattern] = pattern;
    row.nulls[kPattern] = false;
    mark_dropped(true, &row);
    set_past(memory, &row);
    return row;
}

// Removes traces of dropped policies that no longer matter.
void remove_what_is_over(const PolicyRows& policies, std::string_view but, TimestampTz now) {
    for (const PolicyRow& row : policies) {
        if (!is_dropped(row) || pattern_of(row) == but) continue;
        if (!core::past_matters(memory_of(policies, core::cover_rank, pattern_of(row)), now))
            delete_row(row);
    }
}

bool has_same_options(const PolicyRow& row, const PolicyRow& other) {
    for (int i = 0; i < kOptions; i++)
        if (!is_same(row, other, i)) return false;
    return true;
}

// The options that a change of a policy resets, or gives another value.
const char* differing(const PolicyRow& old, const PolicyRow& next, bool reset) {
    StringInfoData names;
    initStringInfo(&names);
    for (int i = 0; i < kOptions; i++)
        if (!is_same(old, next, i) && next.nulls[i] == reset)
            appendStringInfo(&names, "%s%s", names.len == 0 ? "" : ", ",
                             core::kPolicyColumns[i].name);
    return names.data;
}

[[noreturn]] void raise_exists(const PolicyRow& old, const PolicyRow& next) {
    const char* reset = differing(old, next, true);
    const char* changed = differing(old, next, false);
    ereport(ERROR,
            (errcode(ERRCODE_DUPLICATE_OBJECT),
             errmsg("there is already a policy with this scope_pattern"),
             errdetail("The call would %s%s%s%s%s.", *reset == '\0' ? "" : "reset ", reset,
                       *reset == '\0' || *changed == '\0' ? "" : ", and ",
                       *changed == '\0' ? "" : "change ", changed),
             errhint("Use idem_policy_alter, which changes only the options that it names, or "
                     "replace => true.")));
    pg_unreachable();
}

}  // namespace

core::Memory memory_of(const PolicyRows& policies, Rank rank, std::string_view scopes,
                       const PolicyRow* without) {
    core::Memory memory = core::unchanged_memory(core::span_of(default_policy()));
    std::size_t best = 0;
    for (const PolicyRow& row : policies) {
        std::size_t its_rank = rank(pattern_of(row), scopes);
        if (&row == without || is_dropped(row) || its_rank <= best) continue;
        memory = memory_of_row(row);
        best = its_rank;
    }
    for (const PolicyRow& row : policies)
        if (&row != without && is_dropped(row) && rank(pattern_of(row), scopes) > best)
            memory = core::with_past(memory, memory_of_row(row));
    return memory;
}

bool set_policy(PolicyRow* row, const ChangeTerms& terms) {
    PolicyRows policies = lock_policies(CurrentMemoryContext);
    check_may_change(policies, pattern_of(*row), row);
    const PolicyRow* there = live_row(policies, pattern_of(*row));
    if (there != nullptr && has_same_options(*there, *row)) return false;
    if (there != nullptr && !terms.may_replace) raise_exists(*there, *row);
    check_weakening(policies, pattern_of(*row), row, terms.has_reason);
    TimestampTz now = GetCurrentTimestamp();
    core::Memory old = memory_of(policies, core::cover_rank, pattern_of(*row));
    set_past(core::changed_memory(old, core::span_of(policy_of(given_in(*row))), now), row);
    mark_dropped(false, row);
    write_row(row);
    remove_what_is_over(policies, pattern_of(*row), now);
    return true;
}

bool policy_to_change(text* pattern, PolicyRow* row) {
    const PolicyRow* found = live_row(lock_policies(CurrentMemoryContext), pg::bytes_of(pattern));
    if (found != nullptr) *row = *found;
    return found != nullptr;
}

bool drop_policy(text* pattern, bool has_reason) {
    PolicyRows policies = lock_policies(CurrentMemoryContext);
    std::string_view name = pg::bytes_of(pattern);
    const PolicyRow* row = live_row(policies, name);
    if (row == nullptr) return false;
    check_may_change(policies, name, nullptr);
    check_weakening(policies, name, nullptr, has_reason);
    TimestampTz now = GetCurrentTimestamp();
    core::Memory old = memory_of(policies, core::cover_rank, name);
    core::Memory left = memory_of(policies, core::cover_rank, name, row);
    core::Memory past = core::changed_memory(old, left.span, now);
    PolicyRow trace = only_past(row->values[kPattern], past);
    if (past.since == core::kUnchanged)
        delete_row(*row);
    else
        write_row(&trace);
    remove_what_is_over(policies, name, now);
    return true;
}

}  // namespace idem::config
