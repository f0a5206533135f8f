// The sweepers that the launcher has sent and that have not ended.
//
// Invariants:
// - A database has at most one. A sweeper that did not end on request is left behind: it no
//   longer counts as at work, but its database gets no other.
// - A report belongs to one sweeper. The place of one left behind, which may still write, is not
//   reused before it ends.
// - Every wait has a limit: one database must not keep the sweepers from the others.
#pragma once

#include "worker/process.hpp"

namespace idem::worker {

enum class Phase : int { Free, AtWork, ToldToEnd, LeftBehind };

// The place of one sweeper.
struct Sweeper {
    Phase phase;
    Oid database;
    BackgroundWorkerHandle* handle;
    dsm_segment* segment;   // with its report; stays with the place
    std::int64_t deadline;  // how long the launcher waits for it, by the monotonic clock
    bool outdated;          // the settings have changed since it began
};

struct Sweepers {
    Sweeper* items;
    int count;
};

// The number of sweepers at work.
int at_work(const Sweepers& sweepers);

bool has_sweeper(const Sweepers& sweepers, Oid database);

// False if no worker slot is free for it.
bool send_sweeper(Sweepers* sweepers, Oid database, const Report& order);

// The report of a sweeper that has ended, or was given up; false: there is none. A sweeper that
// works too long is terminated.
bool take_report(Sweepers* sweepers, Oid* database, Report* report);

// How long until take_report() must be called again for one of them, at most `micros`.
std::int64_t patience(const Sweepers& sweepers, std::int64_t micros);

// Their reports about the future no longer hold.
void note_reload(Sweepers* sweepers);

}  // namespace idem::worker
