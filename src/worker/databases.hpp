// The databases that the launcher looks after, and when each is visited next. States and
// transitions are in README.md.
//
// Spans are measured by the monotonic clock; the time of day decides about records alone.
#pragma once

#include "worker/process.hpp"
#include "worker/quiet.hpp"

namespace idem::worker {

struct Database {
    Oid oid;
    int failures;              // in a row
    std::int64_t due;          // next visit, by the monotonic clock; 0: at once
    TimestampTz from;          // where the next visit goes on; DT_NOBEGIN: at the start
    store::WalkPosition walk;  // the same of the search for abandoned claims
    std::int64_t lag;          // see note_lag(); kNoLag outside of a backlog
    Quiet quiet;               // since the last visit
};

struct Databases {
    Database* items;
    int count;
};

// Reads the list anew: new databases are due at once, known ones stay as they are, those that are
// gone, templates, closed for connections or invalid are left out. Where somebody has locked the
// list it stays as it is.
void refresh_databases(Databases* databases);

// nullptr: it is not in the list, or no more.
Database* find_database(const Databases& databases, Oid oid);

// idempotency.cleanup_interval, in microseconds.
std::int64_t interval();

void pause(Database* database, std::int64_t micros);

// What a sweeper is told that is sent there now.
Report order_for(const Database& database);

// What one has reported decides when the next one is sent.
void note_visit(Database* database, const Report& report);

// A pause that was fixed under a longer interval must not outlast a shorter one. Back-off stays.
// What is due when may have changed with the settings.
void note_reload(Databases* databases);

}  // namespace idem::worker
