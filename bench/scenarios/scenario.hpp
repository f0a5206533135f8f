// The scenarios. Each leaves the server as it found it, but for the records, which are gone.
#pragma once

#include "harness/report.hpp"
#include "options.hpp"

namespace idem::bench {

// New requests: the transaction without protection, what others do to protect it, and ours.
Findings first_execution(const Options& options);

// The consumer of messages, who keeps no response: idem_once against a unique key in the business
// table.
Findings once(const Options& options);

// Requests that were answered before.
Findings replay(const Options& options);

// A thousand duplicates of a request while it runs.
Findings hot_key(const Options& options);

// What first executions cost beside up to twenty million live records.
Findings live_rows(const Options& options);

// What a request of each contender costs in WAL, buffers and round trips.
Findings resources(const Options& options);

// As many records expire as arrive: what sweeping costs, and how large the table gets.
Findings steady_state(const Options& options);

// A large number of records has expired at once: whether callers notice how they are removed.
Findings backlog(const Options& options);

}  // namespace idem::bench
