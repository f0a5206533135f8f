// Checks for a running launcher, and starts one where the library was not preloaded.
//
// The launcher is single, and so is a sweeper in its database, because it holds an advisory lock of
// the workers' class. The lock is taken like pg_try_advisory_lock(): session level, without
// waiting. The server releases it however the process ends (LockReleaseAll in ShutdownPostgres), so
// no state can become stale.
#pragma once

#include "pg/pg.hpp"

namespace idem::worker {

// Called while the library is preloaded.
void register_launcher_at_start();

// Called by the first claim of a backend: registers a launcher if there is none. Never fails; a
// shortage of worker slots is logged once and tried again later.
void ensure_launcher();

// Takes the launcher's lock, until its process exits. False if another process has it.
bool become_launcher();

// The lock of a database's sweeper, likewise.
bool become_sweeper();

}  // namespace idem::worker
