// What the launcher knows of each database.
#pragma once

#include "pg/pg.hpp"

namespace idem::worker {

struct Database {
    Oid oid;
    int failures;      // in a row
    TimestampTz due;   // next visit
    TimestampTz from;  // where the next visit goes on; DT_NOBEGIN: at the start
};

struct Databases {
    Database* items;
    int count;
};

// Reads the list anew: new databases are due at once, known ones stay as they are, those that are
// gone, templates, closed for connections or invalid are left out.
void refresh_databases(Databases* databases);

}  // namespace idem::worker
