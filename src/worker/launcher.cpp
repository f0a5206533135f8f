// The launcher: connected to no database, it sends sweepers into the databases, several at a time,
// and learns from each when to send the next. States and transitions are in README.md.
//
// It works as autovacuum's launcher does, with dynamic background workers.
//
// The latch is set for any event: a sweeper has started or ended, SIGHUP. So the loop resets it
// first, then checks everything that may have changed.

#include "core/time.hpp"

#include "config/settings.hpp"
#include "pg/wait.hpp"
#include "worker/databases.hpp"
#include "worker/presence.hpp"
#include "worker/sweepers.hpp"

namespace idem::worker {

namespace {

// ---- a visit ----

// Logged once until a slot is free again.
void note_slot(bool had_one) {
    static bool logged = false;
    if (!had_one && !logged)
        ereport(LOG, (errmsg("idempotency: no free worker slot for a sweeper"),
                      errdetail("Expired records stay until there is one."),
                      errhint("Raise max_worker_processes.")));
    logged = !had_one;
}

// False if only the running sweepers have a worker slot. If none runs, the database is tried again
// later.
bool visit(Database* database, Sweepers* sweepers) {
    Quiet quiet = before_visit(database->oid);
    bool sent = send_sweeper(sweepers, database->oid, order_for(*database));
    if (!sent && at_work(*sweepers) > 0) return false;
    note_slot(sent);
    database->quiet = quiet;
    pause(database, interval());
    return true;
}

// The database that has been due longest: one that is always due again must not keep others
// waiting. nullptr: none is due.
Database* next_due(const Databases& databases, const Sweepers& sweepers) {
    std::int64_t now = pg::monotonic_micros();
    Database* next = nullptr;
    for (int i = 0; i < databases.count; i++) {
        Database* database = &databases.items[i];
        if (database->due > now || has_sweeper(sweepers, database->oid)) continue;
        if (next == nullptr || database->due < next->due) next = database;
    }
    return next;
}

// False if databases may still be due, but no more sweepers can be sent.
bool visit_due(const Databases& databases, Sweepers* sweepers) {
    while (at_work(*sweepers) < config::cleanup_max_workers) {
        Database* database = next_due(databases, *sweepers);
        if (database == nullptr) return true;
        if (is_quiet(database->oid, database->quiet))
            pause(database, interval());
        else if (!visit(database, sweepers))
            return false;
    }
    return false;
}

void take_reports(const Databases& databases, Sweepers* sweepers) {
    Oid oid;
    Report report;
    while (take_report(sweepers, &oid, &report)) {
        Database* database = find_database(databases, oid);
        if (database != nullptr) note_visit(database, report);
    }
}

// ---- the loop ----

void apply_reload(Databases* databases, Sweepers* sweepers) {
    if (!reload_if_asked()) return;
    note_reload(databases);
    note_reload(sweepers);
}

// How long until a database is due. New databases are noticed at least once an interval.
std::int64_t time_to_next(const Databases& databases, const Sweepers& sweepers) {
    std::int64_t now = pg::monotonic_micros();
    std::int64_t left = interval();
    for (int i = 0; i < databases.count; i++)
        if (!has_sweeper(sweepers, databases.items[i].oid))
            left = Min(left, databases.items[i].due - now);
    return left;
}

// Microseconds until the launcher must act without a wake-up. If no sweeper can be sent, the end of
// one wakes it.
std::int64_t look_around(Databases* databases, Sweepers* sweepers) {
    take_reports(*databases, sweepers);
    if (config::cleanup_interval == 0) return core::kDay;
    refresh_databases(databases);
    return visit_due(*databases, sweepers) ? time_to_next(*databases, *sweepers) : interval();
}

[[noreturn]] void run() {
    std::uint32_t wait_event = pg::new_wait_event("IdempotencyLauncher");
    Databases databases{};
    Sweepers sweepers{};
    for (;;) {
        apply_reload(&databases, &sweepers);
        std::int64_t left = look_around(&databases, &sweepers);
        std::uint32_t reason = wait_event;
        if (at_work(sweepers) > 0) reason = WAIT_EVENT_BGWORKER_SHUTDOWN;
        nap(patience(sweepers, left), reason);
    }
}

}  // namespace

}  // namespace idem::worker

extern "C" {
__attribute__((visibility("default"))) void idem_launcher_main(Datum);

// Entry point of the launcher. Exits with 0, so that it is not restarted, only if another launcher
// runs already.
void idem_launcher_main(Datum) {
    idem::worker::accept_signals();
    BackgroundWorkerInitializeConnection(nullptr, nullptr, 0);
    if (!idem::worker::become_launcher()) proc_exit(0);
    idem::worker::run();
}
}
