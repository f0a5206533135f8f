// RegisterDynamicBackgroundWorker starts a sweeper. The postmaster wakes the launcher when one has
// started or ended, and GetBackgroundWorkerPid tells which.

#include "worker/sweepers.hpp"

#include "core/time.hpp"

#include "pg/wait.hpp"

namespace idem::worker {

namespace {

// A sweeper has its own limits, and ends long before that. This is for one that cannot keep them:
// it is stopped, waits for a disk, or runs a trigger that ignores signals.
constexpr std::int64_t kPatience = 8 * core::kSecond;
// The same after it was terminated.
constexpr std::int64_t kLastPatience = 2 * core::kSecond;

dsm_segment* create_segment() {
    dsm_segment* segment = dsm_create(sizeof(Report), 0);
    dsm_pin_mapping(segment);
    return segment;
}

// There are never more places than sweepers at one time, those left behind included.
Sweeper* free_place(Sweepers* sweepers) {
    for (int i = 0; i < sweepers->count; i++)
        if (sweepers->items[i].phase == Phase::Free) return &sweepers->items[i];
    dsm_segment* segment = create_segment();
    std::size_t size = sizeof(Sweeper) * static_cast<std::size_t>(sweepers->count + 1);
    sweepers->items = static_cast<Sweeper*>(sweepers->items == nullptr
                                                ? MemoryContextAlloc(TopMemoryContext, size)
                                                : repalloc(sweepers->items, size));
    Sweeper* place = &sweepers->items[sweepers->count++];
    *place = {Phase::Free, InvalidOid, nullptr, segment, 0, false};
    return place;
}

Report* report_of(const Sweeper& sweeper) {
    return static_cast<Report*>(dsm_segment_address(sweeper.segment));
}

bool has_ended(const Sweeper& sweeper) {
    pid_t pid;
    return GetBackgroundWorkerPid(sweeper.handle, &pid) == BGWH_STOPPED;
}

void make_free(Sweeper* sweeper) {
    pfree(sweeper->handle);
    sweeper->handle = nullptr;
    sweeper->phase = Phase::Free;
}

void log_stuck(Oid database) {
    ereport(LOG, (errmsg("idempotency: a sweeper did not finish in time and is terminated"),
                  errdetail(
                      "It works in the database with OID %u. Other databases are swept regardless.",
                      database)));
}

void tell_to_end(Sweeper* sweeper) {
    log_stuck(sweeper->database);
    TerminateBackgroundWorker(sweeper->handle);
    sweeper->phase = Phase::ToldToEnd;
    sweeper->deadline = pg::monotonic_micros() + kLastPatience;
}

bool is_at_work(const Sweeper& sweeper) {
    return sweeper.phase == Phase::AtWork || sweeper.phase == Phase::ToldToEnd;
}

// Whether it has a report, which is copied.
bool take_report_of(Sweeper* sweeper, Report* report) {
    if (sweeper->phase == Phase::Free) return false;
    bool awaited = is_at_work(*sweeper);
    if (has_ended(*sweeper)) {
        *report = *report_of(*sweeper);
        if (sweeper->outdated) report->next = DT_NOBEGIN;
        make_free(sweeper);
        return awaited;
    }
    if (!awaited || pg::monotonic_micros() < sweeper->deadline) return false;
    if (sweeper->phase == Phase::AtWork) {
        tell_to_end(sweeper);
        return false;
    }
    sweeper->phase = Phase::LeftBehind;
    *report = Report{Visit::Failed, 0, DT_NOBEGIN, 0, {}, 0, DT_NOBEGIN};
    return true;
}

}  // namespace

int at_work(const Sweepers& sweepers) {
    int number = 0;
    for (int i = 0; i < sweepers.count; i++)
        if (is_at_work(sweepers.items[i])) number++;
    return number;
}

bool has_sweeper(const Sweepers& sweepers, Oid database) {
    for (int i = 0; i < sweepers.count; i++)
        if (sweepers.items[i].phase != Phase::Free && sweepers.items[i].database == database)
            return true;
    return false;
}

bool send_sweeper(Sweepers* sweepers, Oid database, const Report& order) {
    Sweeper* sweeper = free_place(sweepers);
    *report_of(*sweeper) = order;
    BackgroundWorker worker;
    describe_sweeper(&worker, {database, dsm_segment_handle(sweeper->segment)});
    if (!RegisterDynamicBackgroundWorker(&worker, &sweeper->handle)) return false;
    sweeper->phase = Phase::AtWork;
    sweeper->database = database;
    sweeper->deadline = pg::monotonic_micros() + kPatience;
    sweeper->outdated = false;
    return true;
}

bool take_report(Sweepers* sweepers, Oid* database, Report* report) {
    for (int i = 0; i < sweepers->count; i++) {
        *database = sweepers->items[i].database;
        if (take_report_of(&sweepers->items[i], report)) return true;
    }
    return false;
}

std::int64_t patience(const Sweepers& sweepers, std::int64_t micros) {
    std::int64_t now = pg::monotonic_micros();
    for (int i = 0; i < sweepers.count; i++)
        if (is_at_work(sweepers.items[i])) micros = Min(micros, sweepers.items[i].deadline - now);
    return micros;
}

void note_reload(Sweepers* sweepers) {
    for (int i = 0; i < sweepers->count; i++) sweepers->items[i].outdated = true;
}

}  // namespace idem::worker
