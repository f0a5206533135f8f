// The scenarios. Each leaves the server as it found it, but for the records, which are gone.
#pragma once

#include "options.hpp"
#include "report.hpp"

namespace idem::bench {

// As many records expire as arrive: what sweeping costs, and how large the table gets.
Findings steady_state(const Options& options);

// A large number of records has expired at once: whether callers notice how they are removed.
Findings backlog(const Options& options);

}  // namespace idem::bench
