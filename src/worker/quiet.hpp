// Whether a visit to a database would find nothing to do, judged without a connection to it. A
// visit that finds nothing reports when the first thing there is due. Only a write can change that,
// and the server counts writes.
//
// Autovacuum's launcher judges databases by the same counters. They count every write, those of
// COPY and of logical replication's workers as well, and need no library to be loaded. They come
// late, by ten seconds from an idle session, but never before the commit. So they are compared with
// those from before the visit began. A reset shows. Sessions with track_counts off are not counted;
// their writes wait for the visit that takes place in any case.
#pragma once

#include "pg/pg.hpp"

namespace idem::worker {

struct Quiet {
    pg::WriteCounts writes;  // the counters before the visit began
    std::int64_t visited;    // the time of that, by the monotonic clock
    TimestampTz until;       // when the next thing is due; DT_NOBEGIN: not known, or at once
};

// Called before a visit begins; `until` is not known.
Quiet before_visit(Oid database);

bool is_quiet(Oid database, const Quiet& quiet);

}  // namespace idem::worker
