// What the postmaster is told about our workers.
#pragma once

#include "pg/pg.hpp"

namespace idem::worker {

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
