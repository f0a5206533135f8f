// The sweepers that the launcher has sent and that have not ended yet.
//
// What holds at any time:
// - A database has one at most, also one that did not end when it was told to: that is left behind,
//   and counts no more as one at work, but its database gets no other.
// - A report belongs to one sweeper. The place of one that was left behind, which may still write,
//   is not taken by another before it has ended.
// - Nobody is waited for without an end: one database must not keep the sweepers from the others.
#pragma once

#include "worker/process.hpp"

namespace idem::worker {

enum class Phase : int { Free, AtWork, ToldToEnd, LeftBehind };

// A place for one.
struct Sweeper {
    Phase phase;
    Oid database;
    BackgroundWorkerHandle* handle;
    dsm_segment* segment;   // with its report; stays with the place
    std::int64_t deadline;  // until when it is waited for, by the monotonic clock
    bool outdated;          // the settings have changed since it began
};

struct Sweepers {
    Sweeper* items;
    int count;
};

// Of those that may be at work at the same time.
int at_work(const Sweepers& sweepers);

bool has_sweeper(const Sweepers& sweepers, Oid database);

// False if there is no worker slot for it.
bool send_sweeper(Sweepers* sweepers, Oid database, const Report& order);

// The report of one that has ended, or was given up; false: there is none. Who has been at work
// for too long is told to end.
bool take_report(Sweepers* sweepers, Oid* database, Report* report);

// How long all of them may go on before take_report() has to be called again, at most `micros`.
std::int64_t patience(const Sweepers& sweepers, std::int64_t micros);

// What those at work say of the future does not hold any more.
void note_reload(Sweepers* sweepers);

}  // namespace idem::worker
