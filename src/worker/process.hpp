// Shared by launcher and sweeper: registration, messages to each other, signals and naps.
#pragma once

#include "store/overdue.hpp"

namespace idem::worker {

// Results of a visit. Launcher and sweeper exchange messages in a segment that the launcher made.
enum class Visit : int {
    Started,      // still this value at the end: it died
    Drained,      // no record is left past its retention, and no claim to abandon
    More,         // its time ran out before the work was done
    NoExtension,  // nothing to do in this database
    NotOurs,      // its records come from another server, which sweeps them
    Busy,         // DDL has the table, or another sweeper is at work
    Failed,       // an error, or no connection
};

struct Report {
    Visit visit;
    int failures_before;       // of this database in a row: only the first is logged
    TimestampTz from;          // where to continue; the sweeper moves it
    std::int64_t behind;       // by how much the age of the backlog has grown
    store::WalkPosition walk;  // likewise, of the search for abandoned claims
    std::int64_t rest;         // the rest that the sweeper still owes when it ends
    TimestampTz next;          // not due before, without writes; DT_NOBEGIN: not known
};

// The argument of a sweeper; travels in bgw_extra.
struct SweeperOrder {
    Oid database;
    dsm_handle report;
};
static_assert(sizeof(SweeperOrder) <= BGW_EXTRALEN);

void describe_launcher(BackgroundWorker* worker);
void describe_sweeper(BackgroundWorker* worker, const SweeperOrder& order);

// The signals of both workers: SIGTERM ends, SIGHUP reloads; SIGUSR1 stays the server's.
void accept_signals();

// Reloads the settings if SIGHUP asked for it; else returns false.
bool reload_if_asked();

// Sleeps until the latch is set or the time has passed. Microseconds, a day at most.
void nap(std::int64_t micros, std::uint32_t wait_event);

}  // namespace idem::worker
