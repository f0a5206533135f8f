#include "stats/events.hpp"

#include "core/outcome.hpp"

#include "config/settings.hpp"
#include "pg/datum.hpp"

namespace idem::stats {

namespace {

// What somebody should look at; the rest is everyday life.
bool is_problem(const Event& event) {
    switch (event.outcome) {
        case core::Outcome::Execute:
            return event.claim == core::Claim::Takeover;
        case core::Outcome::Mismatch:
        case core::Outcome::Exhausted:
        case core::Outcome::Expired:
        case core::Outcome::Unknown:
            return true;
        default:
            return false;
    }
}

bool is_wanted(const Event& event) {
    switch (config::log_events()) {
        case config::LogEvents::Off:
            return false;
        case config::LogEvents::Problems:
            return is_problem(event);
        case config::LogEvents::All:
            break;
    }
    return true;
}

// A word in quotes, so that a line can be taken apart whatever the caller sent.
void append_quoted(StringInfo line, const char* name, std::string_view value) {
    appendStringInfo(line, " %s=\"", name);
    for (char c : value) {
        if (c == '"' || c == '\\') appendStringInfoChar(line, '\\');
        appendStringInfoChar(line, c);
    }
    appendStringInfoChar(line, '"');
}

const char* claim_word(core::Claim claim) {
    switch (claim) {
        case core::Claim::First:
            return "first";
        case core::Claim::Reuse:
            return "reuse";
        case core::Claim::Takeover:
            return "takeover";
        case core::Claim::Retry:
            return "retry";
        case core::Claim::None:
            break;
    }
    return nullptr;
}

void append_event(StringInfo line, const Event& event) {
    std::string_view outcome = core::outcome_word(event.outcome);
    appendStringInfo(line, "outcome=%.*s", static_cast<int>(outcome.size()), outcome.data());
    if (const char* claim = claim_word(event.claim)) appendStringInfo(line, " claim=%s", claim);
    append_quoted(line, "scope", event.scope);
    if (event.attempt > 0) appendStringInfo(line, " attempt=%d", event.attempt);
    appendStringInfo(line, " waited_ms=%.3f", static_cast<double>(event.waited) / 1000.0);
    if (!config::log_keys()) return;
    append_quoted(line, "principal", event.principal);
    append_quoted(line, "key", event.key);
}

}  // namespace

void log_event(const Event& event) {
    if (!is_wanted(event)) return;
    StringInfoData line;
    initStringInfo(&line);
    append_event(&line, event);
    ereport(LOG, (errmsg("idempotency: %s", line.data), errhidestmt(true), errhidecontext(true)));
    pfree(line.data);
}

}  // namespace idem::stats
