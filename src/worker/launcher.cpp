// The launcher: connected to no database, it starts a sweeper in one database after the other and
// learns from each when to come again. States and transitions are in README.md.

#include "core/backoff.hpp"
#include "core/duration.hpp"

#include "config/settings.hpp"
#include "worker/databases.hpp"
#include "worker/presence.hpp"
#include "worker/registration.hpp"
#include "worker/report.hpp"

namespace idem::worker {

namespace {

// A database must be without sweeper now and then: DROP DATABASE looks ten times a second for a
// moment in which nobody is connected, and gives up after five seconds.
constexpr std::int64_t kGap = 250 * core::kMillisecond;
constexpr std::int64_t kBusyPause = core::kSecond;
constexpr std::int64_t kLongestBackoff = 300 * core::kSecond;
// Databases without the extension are looked at this many intervals apart.
constexpr int kRediscovery = 10;

std::int64_t interval() {
    return config::cleanup_interval() * core::kSecond;
}

std::int64_t pause_after(const Database& database, Visit visit) {
    switch (visit) {
        case Visit::Drained:
            return interval();
        case Visit::More:
            return kGap;
        case Visit::NoExtension:
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

bool failed(Visit visit) {
    return visit == Visit::Started || visit == Visit::Failed;
}

void note_visit(Database* database, const Report& report) {
    database->failures = failed(report.visit) ? database->failures + 1 : 0;
    database->from = report.visit == Visit::More ? report.from : DT_NOBEGIN;
    database->due = GetCurrentTimestamp() + pause_after(*database, report.visit);
}

// Logged once until a slot is free again.
void note_slot(bool had_one) {
    static bool logged = false;
    if (!had_one && !logged)
        ereport(LOG, (errmsg("idempotency: no free worker slot for a sweeper"),
                      errdetail("Expired records stay until there is one."),
                      errhint("Raise max_worker_processes.")));
    logged = !had_one;
}

// Starts a sweeper and waits for its end.
void visit(Database* database, dsm_segment* segment) {
    auto* report = static_cast<Report*>(dsm_segment_address(segment));
    *report = Report{Visit::Started, database->failures, database->from};
    BackgroundWorker worker;
    describe_sweeper(&worker, {database->oid, dsm_segment_handle(segment)});
    BackgroundWorkerHandle* handle;
    bool started = RegisterDynamicBackgroundWorker(&worker, &handle);
    note_slot(started);
    if (!started) {
        database->due = GetCurrentTimestamp() + interval();
        return;
    }
    (void)WaitForBackgroundWorkerShutdown(handle);
    pfree(handle);
    note_visit(database, *report);
}

// A pause that was fixed under a longer interval must not outlast a shorter one. Back-off stays.
void apply_reload(Databases* databases) {
    if (!reload_if_asked() || config::cleanup_interval() == 0) return;
    TimestampTz latest = GetCurrentTimestamp() + interval();
    for (int i = 0; i < databases->count; i++) {
        Database* database = &databases->items[i];
        if (database->failures == 0) database->due = Min(database->due, latest);
    }
}

void visit_due(Databases* databases, dsm_segment* segment) {
    for (int i = 0; i < databases->count; i++) {
        apply_reload(databases);
        if (config::cleanup_interval() > 0 && databases->items[i].due <= GetCurrentTimestamp())
            visit(&databases->items[i], segment);
    }
}

// How long nothing is due. New databases are noticed at least once an interval.
long millis_to_next(const Databases& databases) {
    if (config::cleanup_interval() == 0) return 24L * 60 * 60 * 1000;
    TimestampTz now = GetCurrentTimestamp();
    std::int64_t left = interval();
    for (int i = 0; i < databases.count; i++) left = Min(left, databases.items[i].due - now);
    return static_cast<long>(Max(left, core::kMillisecond) / core::kMillisecond);
}

[[noreturn]] void run() {
    std::uint32_t wait_event = pg::new_wait_event("IdempotencyLauncher");
    dsm_segment* segment = dsm_create(sizeof(Report), 0);
    dsm_pin_mapping(segment);
    Databases databases{};
    for (;;) {
        apply_reload(&databases);
        if (config::cleanup_interval() > 0) {
            refresh_databases(&databases);
            visit_due(&databases, segment);
        }
        // Waiting for a sweeper may have swallowed the wake-up of a reload.
        apply_reload(&databases);
        nap(millis_to_next(databases), wait_event);
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
