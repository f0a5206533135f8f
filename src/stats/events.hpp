// Reports decisions and recorded results to the counters and the server log.
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

// A decision: counted, and written to the server log as one structured line if
// idempotency.log_events asks for it.
void account_for(const Event& event);

// A decision of an operator or the owner about records, policies or rights.
struct Verdict {
    std::string_view action;
    std::string_view scope;
    const char* role;  // the role of a grant or revocation; nullptr: none
    const char* decided_by;
    const char* acting_as;
    std::string_view before;  // JSON; empty: it did not exist
    std::string_view after;
    std::string_view principal;  // this, the key and the reason are logged only with
    std::string_view key;        // idempotency.log_keys
    std::string_view reason;
};

// Writes its line, unless idempotency.log_events is off: an intervention is not routine.
void log_verdict(const Verdict& verdict);

// A recorded result, by its status.
void account_for_result(std::string_view scope, core::Status status);

// An abandoned claim, and its new status: counted, and logged unless log_events is off.
struct AbandonedClaim {
    std::string_view what;
    std::string_view scope;
    std::string_view principal;
    std::string_view key;
    int attempt;
};
void account_for_abandoned(const AbandonedClaim& claim);

}  // namespace idem::stats
