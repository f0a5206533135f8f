// Whether a visit to a database would find nothing to do, as far as that can be known without being
// connected to it: a visit that has found nothing says when the first thing there is due, and until
// then that changes only if somebody writes, which the server counts.
//
// They are the counters by which autovacuum's launcher looks at databases. They count whatever
// writes, COPY and the workers of logical replication as well, and need no library to be loaded.
// They come late, by ten seconds from an idle session, but never before the commit; so they are
// compared with those from before the visit began. A reset shows. What is not counted is what
// sessions with track_counts off write; that waits for the visit that comes in any case.
#pragma once

#include "pg/pg.hpp"

namespace idem::worker {

struct Quiet {
    pg::WriteCounts writes;  // as counted before the visit began
    std::int64_t visited;    // when that was, by the monotonic clock
    TimestampTz until;       // the next thing is due then; DT_NOBEGIN: not known, or at once
};

// To be called before a visit begins; `until` is not known.
Quiet before_visit(Oid database);

bool is_quiet(Oid database, const Quiet& quiet);

}  // namespace idem::worker
