// What launcher and sweeper have in common: how they are registered, what they tell each other,
// their signals and naps.
#pragma once

#include "store/overdue.hpp"

namespace idem::worker {

// What launcher and sweeper tell each other, through a segment that the launcher made.
enum class Visit : int {
    Started,      // and, if it stays so, died
    Drained,      // nothing is left that is past its retention, or abandoned
    More,         // its time was over before it was through
    NoExtension,  // nothing to do in this database
    NotOurs,      // its records come from another server, which sweeps them
    Busy,         // DDL has the table, or another sweeper is at work
    Failed,       // an error, or no way in
};

struct Report {
    Visit visit;
    int failures_before;       // of this database in a row: only the first is logged
    TimestampTz from;          // where to go on; the sweeper moves it
    std::int64_t behind;       // by how much the backlog has grown older
    store::WalkPosition walk;  // and with the search for abandoned claims
    std::int64_t rest;         // what the sweeper has not rested yet when it ends
    TimestampTz next;          // nothing is due before, if nobody writes; DT_NOBEGIN: not known
};

// What a sweeper is started with; travels in bgw_extra.
struct SweeperOrder {
    Oid database;
    dsm_handle report;
};
static_assert(sizeof(SweeperOrder) <= BGW_EXTRALEN);

void describe_launcher(BackgroundWorker* worker);
void describe_sweeper(BackgroundWorker* worker, const SweeperOrder& order);

// Signals, as both workers want them: SIGTERM ends, SIGHUP reloads; SIGUSR1 stays the server's.
void accept_signals();

// Applies a reload that SIGHUP has announced; false if there was none.
bool reload_if_asked();

// Sleeps until its latch is set or the time is over. Microseconds, a day at most.
void nap(std::int64_t micros, std::uint32_t wait_event);

}  // namespace idem::worker
