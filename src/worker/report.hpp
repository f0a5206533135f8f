// What launcher and sweeper tell each other, through a segment that the launcher made.
#pragma once

#include "pg/pg.hpp"

namespace idem::worker {

enum class Visit : int {
    Started,      // and, if it stays so, died
    Drained,      // nothing expired is left
    More,         // its time was over before it was through
    NoExtension,  // nothing to do in this database
    NotOurs,      // its records come from another server, which sweeps them
    Busy,         // DDL has the table, or another sweeper is at work
    Failed,       // an error, or no way in
};

struct Report {
    Visit visit;
    int failures_before;  // of this database in a row: only the first is logged
    TimestampTz from;     // where to go on; the sweeper moves it
    std::int64_t behind;  // by how much the backlog has grown older
    std::int64_t rest;    // what the sweeper has not rested yet when it ends
};

}  // namespace idem::worker
