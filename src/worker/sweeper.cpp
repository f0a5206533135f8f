// A sweeper: visits one database, removes what has expired in small transactions, and ends. It
// never stays: a worker that is connected stands in the way of DROP DATABASE.

#include "core/duration.hpp"

#include "config/settings.hpp"
#include "pg/internal.hpp"
#include "stats/counters.hpp"
#include "store/store.hpp"
#include "worker/journal.hpp"
#include "worker/presence.hpp"
#include "worker/registration.hpp"
#include "worker/report.hpp"

namespace idem::worker {

namespace {

// A visit ends after that even if there is more to do.
constexpr std::int64_t kVisit = 2 * core::kSecond;
// The launcher waits for us, and so do all other databases: nobody who holds a row or keeps a
// trigger running may stop them. Milliseconds.
constexpr int kTransactionTimeout = 10000;

// Between two batches it rests this many times as long as the last one took: callers shall not feel
// that a million rows expire at once.
constexpr int kRest = 9;

// As autovacuum does: what the database or the role has set is meant for its users. A deletion that
// a crash forgets is made again, so no commit waits for disk or standby.
constexpr const char* kSettings[][2] = {
    {"lock_timeout", "1000"},
    {"synchronous_commit", "off"},
    {"default_transaction_isolation", "read committed"},
    {"default_transaction_read_only", "off"},
    {"default_transaction_deferrable", "off"},
    {"jit", "off"},
};

// Whether the extension is here, and its table is not under DDL. A schema of our name that does
// not belong to the extension is none of our business. The lock is kept until the commit.
Visit enter_table() {
    Oid extension = get_extension_oid("idempotency", true);
    Oid schema = get_namespace_oid("idempotency", true);
    Oid table = OidIsValid(schema) ? get_relname_relid("record", schema) : InvalidOid;
    if (!OidIsValid(extension) || !OidIsValid(table) ||
        getExtensionOfObject(RelationRelationId, table) != extension)
        return Visit::NoExtension;
    if (!ConditionalLockRelationOid(table, RowExclusiveLock)) return Visit::Busy;
    // It may have been dropped while we came for the lock.
    return SearchSysCacheExists1(RELOID, ObjectIdGetDatum(table)) ? Visit::More
                                                                  : Visit::NoExtension;
}

// Restricted, so that a deferred trigger of whoever owns the table can't wait for the moment in
// which the superuser that we are is himself again.
void begin_transaction() {
    SetCurrentStatementStartTimestamp();
    StartTransactionCommand();
    SetUserIdAndSecContext(GetUserId(), SECURITY_RESTRICTED_OPERATION);
    PushActiveSnapshot(GetTransactionSnapshot());
    enable_timeout_after(STATEMENT_TIMEOUT, kTransactionTimeout);
}

// Statistics are flushed at once: autovacuum has to see the deletes, and we may end now.
void end_transaction() {
    disable_timeout(STATEMENT_TIMEOUT, false);
    PopActiveSnapshot();
    SetUserIdAndSecContext(GetUserId(), 0);
    CommitTransactionCommand();
    (void)pgstat_report_stat(true);
}

// Halved with each failure in a row: a batch that takes too long would never be done.
int batch_size(const Report& report) {
    return Max(config::cleanup_batch_size() >> Min(report.failures_before, 20), 1);
}

// One batch, one transaction.
Visit sweep_batch(Report* report, std::int64_t* total) {
    begin_transaction();
    Visit visit = enter_table();
    if (visit == Visit::More) {
        store::Expired which{report->from, GetCurrentTimestamp() - config::cleanup_grace(),
                             batch_size(*report), stats::count_swept};
        store::Removed removed = store::store(config::store_choice()).remove_expired(which);
        report->from = removed.last;
        *total += removed.rows;
        if (removed.rows < which.limit) visit = Visit::Drained;
    }
    end_transaction();
    return visit;
}

void rest_after(TimestampTz start) {
    std::int64_t worked = GetCurrentTimestamp() - start;
    nap(static_cast<long>(kRest * worked / core::kMillisecond) + 1, PG_WAIT_EXTENSION);
}

Visit sweep(Report* report, std::int64_t* total) {
    TimestampTz end = GetCurrentTimestamp() + kVisit;
    Visit visit = Visit::More;
    while (visit == Visit::More && GetCurrentTimestamp() < end) {
        TimestampTz start = GetCurrentTimestamp();
        visit = sweep_batch(report, total);
        if (visit == Visit::More) rest_after(start);
        CHECK_FOR_INTERRUPTS();
        reload_if_asked();
    }
    return visit;
}

void note_in_journal(const JournalEntry& entry) {
    begin_transaction();
    if (enter_table() == Visit::More) write_journal(entry);
    end_transaction();
}

void visit_database(Report* report) {
    if (!become_sweeper()) {
        report->visit = Visit::Busy;
        return;
    }
    JournalEntry entry{GetCurrentTimestamp(), 0, nullptr};
    pgstat_report_activity(STATE_RUNNING, "removing expired records");
    Visit visit = sweep(report, &entry.rows);
    if (visit == Visit::Drained || visit == Visit::More) note_in_journal(entry);
    report->visit = visit;
}

// Ends what the error broke off. The message survives in `context`.
char* take_error(MemoryContext context, bool log) {
    MemoryContextSwitchTo(context);
    ErrorData* error = CopyErrorData();
    HOLD_INTERRUPTS();
    disable_all_timeouts(false);
    QueryCancelPending = false;
    if (log) EmitErrorReport();
    AbortOutOfAnyTransaction();
    FlushErrorState();
    RESUME_INTERRUPTS();
    MemoryContextSwitchTo(context);
    return error->message;
}

// Runs a step; nullptr if it went well, else the message of its error.
template <typename Step>
char* run_guarded(Step step, bool log) {
    MemoryContext context = CurrentMemoryContext;
    char* volatile message = nullptr;
    PG_TRY();
    { step(); }
    PG_CATCH();
    { message = take_error(context, log); }
    PG_END_TRY();
    return message;
}

// An error ends the visit, not the server: the launcher comes again after a pause. Only the first
// of a streak is logged; the journal, if it can be written, has the last.
void visit_guarded(Report* report) {
    bool log = report->failures_before == 0;
    char* message = run_guarded([report] { visit_database(report); }, log);
    if (message == nullptr) return;
    report->visit = Visit::Failed;
    JournalEntry entry{GetCurrentTimestamp(), 0, message};
    (void)run_guarded([&entry] { note_in_journal(entry); }, false);
}

}  // namespace

}  // namespace idem::worker

extern "C" {
__attribute__((visibility("default"))) void idem_sweeper_main(Datum);

// Entry point of a sweeper. It is never restarted; the launcher starts another when it is due.
void idem_sweeper_main(Datum) {
    idem::worker::SweeperOrder order;
    memcpy(&order, MyBgworkerEntry->bgw_extra, sizeof(order));
    idem::worker::accept_signals();
    dsm_segment* segment = dsm_attach(order.report);
    // The launcher that sent us has ended.
    if (segment == nullptr) proc_exit(0);
    dsm_pin_mapping(segment);
    BackgroundWorkerInitializeConnectionByOid(order.database, InvalidOid, 0);
    for (const auto& [name, value] : idem::worker::kSettings)
        SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
    idem::worker::visit_guarded(static_cast<idem::worker::Report*>(dsm_segment_address(segment)));
    proc_exit(0);
}
}
