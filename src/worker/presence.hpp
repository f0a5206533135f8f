// Whether a launcher runs, and starting one where the library was not preloaded.
//
// A launcher, and a sweeper in its database, is alone because it has an advisory lock of the
// workers' class, taken like pg_try_advisory_lock(): session level, without waiting. A process that
// ends in whatever way gives it back (LockReleaseAll in ShutdownPostgres), so there is no state
// that could be stale.
#pragma once

#include "pg/pg.hpp"

namespace idem::worker {

// Called while the library is preloaded.
void register_launcher_at_start();

// Called by the first claim of a backend: registers a launcher if there is none. Never fails; a
// shortage of worker slots is logged once and tried again later.
void ensure_launcher();

// The launcher's lock, for as long as its process lives. False if another one has it.
bool become_launcher();

// The lock of a database's sweeper, likewise.
bool become_sweeper();

}  // namespace idem::worker
