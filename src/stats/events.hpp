// One structured line in the server log per decision, if idempotency.log_events wants it.
#pragma once

#include "core/decision.hpp"

#include "pg/pg.hpp"

namespace idem::stats {

struct Event {
    core::Outcome outcome;
    core::Claim claim;
    std::string_view scope;
    std::string_view principal;  // this and the key are logged only with idempotency.log_keys
    std::string_view key;
    int attempt;          // 0: not known
    std::int64_t waited;  // microseconds
};

void log_event(const Event& event);

}  // namespace idem::stats
