// The launcher's databases, and when each is visited next. States and transitions are in README.md.
//
// Spans are measured by the monotonic clock; the time of day decides only about records.
#pragma once

#include "worker/process.hpp"
#include "worker/quiet.hpp"

namespace idem::worker {

struct Database {
    Oid oid;
    int failures;              // in a row
    std::int64_t due;          // next visit, by the monotonic clock; 0: at once
    TimestampTz from;          // where the next visit continues; DT_NOBEGIN: at the start
    store::WalkPosition walk;  // likewise, for the search for abandoned claims
    std::int64_t lag;          // see note_lag(); kNoLag outside of a backlog
    Quiet quiet;               // since the last visit
};

struct Databases {
    Database* items;
    int count;
};

// Reads the list again: new databases are due at once, and known ones keep their state. Databases
// that were dropped, templates, databases closed for connections and invalid ones are left out. If
// pg_database is locked, the list stays as it is.
void refresh_databases(Databases* databases);

// nullptr: not in the list, or no longer.
Database* find_database(const Databases& databases, Oid oid);

// idempotency.cleanup_interval, in microseconds.
std::int64_t interval();

void pause(Database* database, std::int64_t micros);

// The order for a sweeper that is sent there now.
Report order_for(const Database& database);

// A sweeper's report decides when the next one is sent.
void note_visit(Database* database, const Report& report);

// After a change of settings. A pause fixed under a longer interval must not outlast a shorter one;
// back-off stays. The time when records are next due may have changed as well.
void note_reload(Databases* databases);

}  // namespace idem::worker
