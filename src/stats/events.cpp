#include "stats/events.hpp"

#include "config/settings.hpp"
#include "pg/datum.hpp"
#include "stats/counters.hpp"

namespace idem::stats {

namespace {

void count_event(const Event& event) {
    const core::ExecutionEntry& execution = core::entry_of(event.execution);
    count(event.scope, core::entry_of(event.outcome).counter);
    if (execution.counter) count(event.scope, *execution.counter);
    if (event.waited == 0) return;
    count(event.scope, Counter::Waits);
    count(event.scope, Counter::WaitMicros, static_cast<std::uint64_t>(event.waited));
}

// Problems need an operator's attention; other events are routine.
bool is_wanted(const Event& event) {
    if (config::log_events != config::kLogProblems) return config::log_events == config::kLogAll;
    return core::entry_of(event.outcome).is_problem || core::entry_of(event.execution).is_problem;
}

// A quoted word, so that the log line can be parsed whatever the caller sent.
void append_quoted(StringInfo line, const char* name, std::string_view value) {
    appendStringInfo(line, " %s=\"", name);
    for (char c : value) {
        if (c == '"' || c == '\\') appendStringInfoChar(line, '\\');
        appendStringInfoChar(line, c);
    }
    appendStringInfoChar(line, '"');
}

void append_word(StringInfo line, const char* name, std::string_view word) {
    appendStringInfo(line, "%s=%.*s", name, static_cast<int>(word.size()), word.data());
}

// Keys and principals may be secrets.
void append_key(StringInfo line, std::string_view principal, std::string_view key) {
    if (!config::log_keys) return;
    append_quoted(line, "principal", principal);
    append_quoted(line, "key", key);
}

void append_event(StringInfo line, const Event& event) {
    append_word(line, "outcome", core::entry_of(event.outcome).word);
    if (event.execution != core::Execution::None)
        append_word(line, " claim", core::entry_of(event.execution).word);
    append_quoted(line, "scope", event.scope);
    if (event.attempt > 0) appendStringInfo(line, " attempt=%d", event.attempt);
    appendStringInfo(line, " waited_ms=%.3f", static_cast<double>(event.waited) / 1000.0);
    append_key(line, event.principal, event.key);
}

// JSON needs no quotes: a parser finds its end.
void append_json(StringInfo line, const char* name, std::string_view json) {
    if (!json.empty()) append_word(line, name, json);
}

void append_if_given(StringInfo line, const char* name, std::string_view value) {
    if (!value.empty()) append_quoted(line, name, value);
}

void append_verdict(StringInfo line, const Verdict& verdict) {
    append_word(line, "decision", verdict.action);
    append_if_given(line, "scope", verdict.scope);
    if (verdict.role != nullptr) append_quoted(line, "role", verdict.role);
    append_quoted(line, "decided_by", verdict.decided_by);
    append_quoted(line, "acting_as", verdict.acting_as);
    append_json(line, " before", verdict.before);
    append_json(line, " after", verdict.after);
    if (!config::log_keys) return;
    append_if_given(line, "principal", verdict.principal);
    append_if_given(line, "key", verdict.key);
    append_if_given(line, "reason", verdict.reason);
}

void append_abandoned(StringInfo line, const AbandonedClaim& claim) {
    append_word(line, "abandoned", claim.what);
    append_quoted(line, "scope", claim.scope);
    appendStringInfo(line, " attempt=%d", claim.attempt);
    append_key(line, claim.principal, claim.key);
}

template <typename Happened>
void log(const Happened& happened, void (*append)(StringInfo line, const Happened& happened)) {
    StringInfoData line;
    initStringInfo(&line);
    append(&line, happened);
    ereport(LOG, (errmsg("idempotency: %s", line.data), errhidestmt(true), errhidecontext(true)));
    pfree(line.data);
}

}  // namespace

void account_for(const Event& event) {
    count_event(event);
    if (is_wanted(event)) log(event, append_event);
}

void log_verdict(const Verdict& verdict) {
    if (config::log_events != config::kLogOff) log(verdict, append_verdict);
}

void account_for_abandoned(const AbandonedClaim& claim) {
    count(claim.scope, Counter::Abandoned);
    if (config::log_events != config::kLogOff) log(claim, append_abandoned);
}

void account_for_result(std::string_view scope, core::Status status) {
    if (std::optional<Counter> counter = core::entry_of(status).counter) count(scope, *counter);
}

}  // namespace idem::stats
