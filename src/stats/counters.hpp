// Counters of decisions and events, per scope of a database, in shared memory. There is room for
// 1,024 scopes. A further one gets the slot of a scope unused for long, whose counts go to the
// overflow slot of its database.
#pragma once

#include "core/outcome.hpp"

#include "pg/pg.hpp"

namespace idem::stats {

using core::Counter;
using core::kCounterCount;

// Called while the library is preloaded; before server 17 there are no statistics otherwise.
void request_shared_memory();

// Whether statistics exist; attaches to the named segment on servers that have those.
bool available();

void count(std::string_view scope, Counter counter, std::uint64_t amount = 1);

// For store::Sweep.
void count_swept(std::string_view scope, std::int64_t rows);

// For store::watch_store_errors(): raises no error.
void count_store_error(std::string_view scope);

// One row of the view. `scope` is nullptr for the overflow slot of this database, or of those
// that came after the first 63.
struct ScopeCounts {
    text* scope;
    std::uint64_t counts[kCounterCount];
    TimestampTz since;
};

// The scopes of this database, then the overflow slots if they were ever used; copies in the
// current memory context. Returns their number.
int read_all(ScopeCounts** rows);

// Zeroes the counters of this database.
void reset();

}  // namespace idem::stats
