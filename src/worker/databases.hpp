// What the launcher knows of each database.
#pragma once

#include "pg/pg.hpp"

namespace idem::worker {

struct Database {
    Oid oid;
    int failures;                   // in a row
    std::int64_t due;               // next visit, by the monotonic clock; 0: at once
    TimestampTz from;               // where the next visit goes on; DT_NOBEGIN: at the start
    std::int64_t lag;               // see note_lag(); kNoLag outside of a backlog
    BackgroundWorkerHandle* stuck;  // a sweeper that did not end when it was told to
};

constexpr std::int64_t kNoLag = PG_INT64_MAX;

struct Databases {
    Database* items;
    int count;
};

// Reads the list anew: new databases are due at once, known ones stay as they are, those that are
// gone, templates, closed for connections or invalid are left out. Where somebody has locked the
// list it stays as it is.
void refresh_databases(Databases* databases);

}  // namespace idem::worker
