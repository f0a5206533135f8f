// The sweeper's journal: one row per database, in the database itself, so that it can be read
// however the library was loaded, and on a standby.
#pragma once

#include "pg/pg.hpp"

namespace idem::worker {

struct JournalEntry {
    TimestampTz started;
    std::int64_t start;  // the same moment by the monotonic clock
    std::int64_t rows;
    const char* error;  // nullptr: none
};

// In the caller's transaction. A run that found nothing is written only now and then: an idle
// database should cost next to nothing.
void write_journal(const JournalEntry& entry);

}  // namespace idem::worker
