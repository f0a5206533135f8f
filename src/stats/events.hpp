// What was decided, and what was recorded, for the counters and the server log.
#pragma once

#include "core/outcome.hpp"
#include "core/policy.hpp"

#include "pg/pg.hpp"

namespace idem::stats {

struct Event {
    core::Outcome outcome;
    core::Execution execution;
    std::string_view scope;
    std::string_view principal;  // this and the key are logged only with idempotency.log_keys
    std::string_view key;
    int attempt;          // 0: not known
    std::int64_t waited;  // microseconds; 0: not at all
};

// A decision: counts it, and writes one structured line to the server log if idempotency.log_events
// wants it.
void account_for(const Event& event);

// What an operator or the owner has decided about records, policies or rights.
struct Verdict {
    std::string_view action;
    std::string_view scope;
    const char* role;  // that was granted to, or revoked from; nullptr: none
    const char* decided_by;
    const char* acting_as;
    std::string_view before;  // JSON; empty: there was nothing
    std::string_view after;
    std::string_view principal;  // this, the key and the reason are logged only with
    std::string_view key;        // idempotency.log_keys
    std::string_view reason;
};

// Writes its line, unless idempotency.log_events is off: that somebody steps in is no everyday
// life.
void log_verdict(const Verdict& verdict);

// A result that was recorded, by the status that it was recorded with.
void account_for_result(std::string_view scope, core::Status status);

// A claim that nobody came back for, and what became of it: counted, and logged if log_events is
// not off.
struct AbandonedClaim {
    std::string_view what;
    std::string_view scope;
    std::string_view principal;
    std::string_view key;
    int attempt;
};
void account_for_abandoned(const AbandonedClaim& claim);

}  // namespace idem::stats
