// The launcher: connected to no database, it starts a sweeper in one database after the other and
// learns from each when to come again. States and transitions are in README.md.
//
// It is what autovacuum's launcher and its get_database_list() are, made of dynamic background
// workers: RegisterDynamicBackgroundWorker, then a wait like WaitForBackgroundWorkerShutdown, but
// with an end.
//
// What holds at any time:
// - There is one sweeper at work that this process knows of; those that did not end when they were
//   told to are remembered with their database, which gets no other.
// - Nothing waits without an end: one database must not keep the sweepers from the others.
// - A report belongs to one sweeper. Where that is left behind, the segment is given up as well.
// - Spans are measured by the monotonic clock; the time of day decides about records alone.
//
// A wake-up may be for something else (a sweeper's end, SIGHUP). So the latch is reset before
// anything is looked at, and whatever may have changed is looked at again.

#include "core/time.hpp"

#include "config/settings.hpp"
#include "pg/wait.hpp"
#include "worker/presence.hpp"
#include "worker/process.hpp"
#include "worker/quiet.hpp"

namespace idem::worker {

namespace {

// ---- the list of databases ----

struct Database {
    Oid oid;
    int failures;                   // in a row
    std::int64_t due;               // next visit, by the monotonic clock; 0: at once
    TimestampTz from;               // where the next visit goes on; DT_NOBEGIN: at the start
    store::WalkPosition walk;       // the same of the search for abandoned claims
    std::int64_t lag;               // see note_lag(); kNoLag outside of a backlog
    Quiet quiet;                    // since the last visit
    BackgroundWorkerHandle* stuck;  // a sweeper that did not end when it was told to
};

constexpr std::int64_t kNoLag = PG_INT64_MAX;

struct Databases {
    Database* items;
    int count;
};

bool is_swept(Form_pg_database form) {
    return form->datallowconn && !form->datistemplate && !pg::is_invalid_database(form);
}

Database known_or_new(const Databases& known, Oid oid) {
    for (int i = 0; i < known.count; i++)
        if (known.items[i].oid == oid) return known.items[i];
    return {oid, 0, 0, DT_NOBEGIN, {}, kNoLag, {{}, 0, DT_NOBEGIN}, nullptr};
}

void add(Databases* list, const Database& database) {
    std::size_t size = sizeof(Database) * static_cast<std::size_t>(list->count + 1);
    list->items =
        static_cast<Database*>(list->items == nullptr ? MemoryContextAlloc(TopMemoryContext, size)
                                                      : repalloc(list->items, size));
    list->items[list->count++] = database;
}

Databases read_databases(const Databases& known) {
    Databases fresh{};
    (void)GetTransactionSnapshot();
    Relation relation = table_open(DatabaseRelationId, NoLock);
    TableScanDesc scan = table_beginscan_catalog(relation, 0, nullptr);
    while (HeapTuple tuple = heap_getnext(scan, ForwardScanDirection)) {
        auto* form = reinterpret_cast<Form_pg_database>(GETSTRUCT(tuple));
        if (is_swept(form)) add(&fresh, known_or_new(known, form->oid));
    }
    table_endscan(scan);
    table_close(relation, NoLock);
    return fresh;
}

// Reads the list anew: new databases are due at once, known ones stay as they are, those that are
// gone, templates, closed for connections or invalid are left out. Where somebody has locked the
// list it stays as it is.
// pg_database is the only catalog that can be read without being in a database, and in a
// transaction of its own. The launcher waits for nobody's lock on it, VACUUM FULL's for example.
void refresh_databases(Databases* databases) {
    StartTransactionCommand();
    if (ConditionalLockRelationOid(DatabaseRelationId, AccessShareLock)) {
        Databases fresh = read_databases(*databases);
        if (databases->items != nullptr) pfree(databases->items);
        *databases = fresh;
    }
    CommitTransactionCommand();
}

// ---- when to visit ----

// A database must be without sweeper now and then: DROP DATABASE looks ten times a second for a
// moment in which nobody is connected, and gives up after five seconds.
constexpr std::int64_t kGap = 250 * core::kMillisecond;
constexpr std::int64_t kBusyPause = core::kSecond;
constexpr std::int64_t kLongestBackoff = 300 * core::kSecond;
// Databases without the extension are looked at this many intervals apart.
constexpr int kRediscovery = 10;
// A sweeper has bounds of its own, and ends long before that. This is for one that can't keep them:
// it is stopped, waits for a disk, or somebody's code in a trigger hears no signal.
constexpr std::int64_t kPatience = 8 * core::kSecond;
// And that for one that was told to end.
constexpr std::int64_t kLastPatience = 2 * core::kSecond;

std::int64_t interval() {
    return config::cleanup_interval * core::kSecond;
}

std::int64_t pause_after(const Database& database, const Report& report) {
    switch (report.visit) {
        case Visit::Drained:
            return interval();
        case Visit::More:
            return Max(kGap, report.rest);
        case Visit::NoExtension:
        case Visit::NotOurs:
            return interval() * kRediscovery;
        case Visit::Busy:
            return kBusyPause;
        case Visit::Started:
        case Visit::Failed:
            break;
    }
    return Max(interval(),
               core::backoff_ceiling(core::kSecond, kLongestBackoff, database.failures));
}

std::int64_t lag(const Database& database) {
    return GetCurrentTimestamp() - config::cleanup_grace * core::kSecond - database.from;
}

std::int64_t behind(const Database& database) {
    return database.lag == kNoLag ? 0 : lag(database) - database.lag;
}

bool failed(Visit visit) {
    return visit == Visit::Started || visit == Visit::Failed;
}

void pause(Database* database, std::int64_t micros) {
    database->due = pg::monotonic_micros() + micros;
}

// How old the oldest record is that is left in a backlog; kept is the least since it began, for it
// may have been old then.
void note_lag(Database* database) {
    database->lag = database->from == DT_NOBEGIN ? kNoLag : Min(database->lag, lag(*database));
}

void note_visit(Database* database, const Report& report) {
    database->failures = failed(report.visit) ? database->failures + 1 : 0;
    // After an error it goes on behind what the visit has removed before.
    database->from = report.visit == Visit::More || failed(report.visit) ? report.from : DT_NOBEGIN;
    database->walk = report.walk;
    database->quiet.until = report.next;
    note_lag(database);
    pause(database, pause_after(*database, report));
}

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

void log_stuck(Oid database) {
    ereport(LOG,
            (errmsg("idempotency: a sweeper does not end by itself"),
             errdetail("It is in the database with OID %u, and is terminated. Even if that does "
                       "not help, the other databases are swept.",
                       database)));
}

// Whether the sweeper has ended within that time. Microseconds.
bool wait_for_end(BackgroundWorkerHandle* handle, std::int64_t micros) {
    std::int64_t end = pg::monotonic_micros() + micros;
    pid_t pid;
    while (GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED) {
        std::int64_t left = end - pg::monotonic_micros();
        if (left <= 0) return false;
        nap(left, WAIT_EVENT_BGWORKER_SHUTDOWN);
    }
    return true;
}

bool wait_or_end(BackgroundWorkerHandle* handle, Oid database) {
    if (wait_for_end(handle, kPatience)) return true;
    log_stuck(database);
    TerminateBackgroundWorker(handle);
    return wait_for_end(handle, kLastPatience);
}

dsm_segment* create_segment() {
    dsm_segment* segment = dsm_create(sizeof(Report), 0);
    dsm_pin_mapping(segment);
    return segment;
}

// It may still write its report, which must not be taken for another's.
void leave_behind(Database* database, BackgroundWorkerHandle* handle, dsm_segment** segment) {
    database->stuck = handle;
    dsm_detach(*segment);
    *segment = create_segment();
}

// Whether a sweeper that was left behind is still there. If so, another look is taken later.
bool is_stuck(Database* database) {
    if (database->stuck == nullptr) return false;
    if (!wait_for_end(database->stuck, 0)) {
        pause(database, kBusyPause);
        return true;
    }
    pfree(database->stuck);
    database->stuck = nullptr;
    return false;
}

BackgroundWorkerHandle* start_sweeper(const Database& database, dsm_segment* segment) {
    BackgroundWorker worker;
    describe_sweeper(&worker, {database.oid, dsm_segment_handle(segment)});
    BackgroundWorkerHandle* handle;
    bool started = RegisterDynamicBackgroundWorker(&worker, &handle);
    note_slot(started);
    return started ? handle : nullptr;
}

// Starts a sweeper and waits for its end, but not for ever.
void visit(Database* database, dsm_segment** segment) {
    if (is_stuck(database)) return;
    auto* report = static_cast<Report*>(dsm_segment_address(*segment));
    *report = Report{Visit::Started,    database->failures, database->from,
                     behind(*database), database->walk,     0,
                     DT_NOBEGIN};
    database->quiet = before_visit(database->oid);
    BackgroundWorkerHandle* handle = start_sweeper(*database, *segment);
    if (handle == nullptr) {
        pause(database, interval());
        return;
    }
    if (wait_or_end(handle, database->oid)) {
        pfree(handle);
        note_visit(database, *report);
    } else {
        leave_behind(database, handle, segment);
        note_visit(database, Report{Visit::Failed, 0, DT_NOBEGIN, 0, {}, 0, DT_NOBEGIN});
    }
}

// A pause that was fixed under a longer interval must not outlast a shorter one. Back-off stays.
// What is due when may have changed with the settings.
void apply_reload(Databases* databases) {
    if (!reload_if_asked() || config::cleanup_interval == 0) return;
    std::int64_t latest = pg::monotonic_micros() + interval();
    for (int i = 0; i < databases->count; i++) {
        Database* database = &databases->items[i];
        if (database->failures == 0) database->due = Min(database->due, latest);
        database->quiet.until = DT_NOBEGIN;
    }
}

void visit_due(Databases* databases, dsm_segment** segment) {
    for (int i = 0; i < databases->count; i++) {
        apply_reload(databases);
        Database* database = &databases->items[i];
        if (config::cleanup_interval == 0 || database->due > pg::monotonic_micros()) continue;
        if (is_quiet(database->oid, database->quiet))
            pause(database, interval());
        else
            visit(database, segment);
    }
}

// How long nothing is due. New databases are noticed at least once an interval.
std::int64_t time_to_next(const Databases& databases) {
    if (config::cleanup_interval == 0) return core::kDay;
    std::int64_t now = pg::monotonic_micros();
    std::int64_t left = interval();
    for (int i = 0; i < databases.count; i++) left = Min(left, databases.items[i].due - now);
    return left;
}

[[noreturn]] void run() {
    std::uint32_t wait_event = pg::new_wait_event("IdempotencyLauncher");
    dsm_segment* segment = create_segment();
    Databases databases{};
    for (;;) {
        apply_reload(&databases);
        if (config::cleanup_interval > 0) {
            refresh_databases(&databases);
            visit_due(&databases, &segment);
        }
        // Waiting for a sweeper may have swallowed the wake-up of a reload.
        apply_reload(&databases);
        nap(time_to_next(databases), wait_event);
    }
}

}  // namespace

}  // namespace idem::worker

extern "C" {
__attribute__((visibility("default"))) void idem_launcher_main(Datum);

// Entry point of the launcher. Ends with 0, so that it is not started again, only if another one
// runs already.
void idem_launcher_main(Datum) {
    idem::worker::accept_signals();
    BackgroundWorkerInitializeConnection(nullptr, nullptr, 0);
    if (!idem::worker::become_launcher()) proc_exit(0);
    idem::worker::run();
}
}
