// A sweeper: visits one database, removes records past their retention in small transactions, and
// exits. It never stays: a connected worker would block DROP DATABASE.
//
// Core functions mirrored: AutoVacWorkerMain (settings that no database or role may change, in
// force before InitPostgres); PostgresMain (begin and end of transactions, with statement_timeout
// as the alarm, and the clean-up of an error in its handler).
//
// Invariants:
// - One sweeper works in a database: it takes the lock of presence.hpp first. Its launcher may have
//   ended, and the next one sent another sweeper.
// - In a batch the table is locked (RowExclusiveLock) without waiting, so DDL goes first. The OID
//   is looked up again under the lock, for DROP EXTENSION may have come before.
// - A row that another session has locked is skipped (SKIP LOCKED): the sweeper does not wait for a
//   decision about a key.
// - The search for abandoned claims comes when no record is left past its retention, or the time
//   for those is used up. So an error there does not stop removals.
// - The report says how far the visit came, however it ends: it is written after each commit.

#include "core/time.hpp"

#include "claim/abandon.hpp"
#include "config/settings.hpp"
#include "pg/installed.hpp"
#include "pg/owner.hpp"
#include "pg/wait.hpp"
#include "stats/counters.hpp"
#include "store/attempt.hpp"
#include "store/audit.hpp"
#include "store/next_due.hpp"
#include "store/record.hpp"
#include "store/sweep.hpp"
#include "worker/presence.hpp"
#include "worker/process.hpp"

namespace idem::worker {

namespace {

// After that a visit begins no batch, even if there is more to do.
constexpr std::int64_t kVisit = 2 * core::kSecond;
// No transaction of a visit runs longer than that. Sweepers are few, so other databases wait for
// our end, and DROP DATABASE waits, for five seconds. A locked row or a slow trigger must not delay
// them.
constexpr std::int64_t kLongestVisit = 4 * core::kSecond;
// The extra time for the journal.
constexpr std::int64_t kForJournal = core::kSecond / 2;

// As autovacuum does: settings of the database or the role are for its users. A deletion lost in a
// crash is made again, so no commit waits for disk or standby. These are in force before we are
// connected, because connecting takes locks, too, which a rename or copy of the database holds.
constexpr const char* kSettings[][2] = {
    {"lock_timeout", "1000"},
    {"synchronous_commit", "off"},
    {"default_transaction_isolation", "read committed"},
    {"default_transaction_read_only", "off"},
    {"default_transaction_deferrable", "off"},
    {"jit", "off"},
    // From server 17 on. It would end the process, which has limits of its own.
    {"transaction_timeout", "0"},
};

void apply_settings() {
    for (const auto& [name, value] : kSettings)
        if (GetConfigOption(name, true, false) != nullptr)
            SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

// Rows from another server are removed by its own sweeper, and the deletion arrives here. If we
// removed one before, and its key is used again over there, that change would find no row here.
bool is_subscribed(Oid table) {
    CatCList* subscriptions = SearchSysCacheList1(SUBSCRIPTIONRELMAP, ObjectIdGetDatum(table));
    bool any = subscriptions->n_members > 0;
    ReleaseSysCacheList(subscriptions);
    return any;
}

// Whether the extension is here, and no DDL has its table. A schema with our name that does not
// belong to the extension is ignored. The lock is kept until the commit.
Visit enter_table() {
    Oid extension = get_extension_oid(pg::kExtension, true);
    Oid table = pg::find_table(store::kRecordTable);
    if (!OidIsValid(extension) || !OidIsValid(table) ||
        getExtensionOfObject(RelationRelationId, table) != extension)
        return Visit::NoExtension;
    if (!ConditionalLockRelationOid(table, RowExclusiveLock)) return Visit::Busy;
    // It may have been dropped before we got the lock.
    if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(table))) return Visit::NoExtension;
    return is_subscribed(table) ? Visit::NotOurs : Visit::More;
}

// A security-restricted operation: a deferred trigger is refused, which would run at commit with
// the rights of the bootstrap superuser. STATEMENT_TIMEOUT cancels the transaction at `end`.
void begin_transaction(std::int64_t end) {
    std::int64_t left = (end - pg::monotonic_micros()) / core::kMillisecond;
    SetCurrentStatementStartTimestamp();
    StartTransactionCommand();
    SetUserIdAndSecContext(GetUserId(), SECURITY_RESTRICTED_OPERATION);
    PushActiveSnapshot(GetTransactionSnapshot());
    enable_timeout_after(STATEMENT_TIMEOUT, static_cast<int>(Max(left, 1)));
}

// Flushes statistics at once: autovacuum must see the deletes, and we may end now.
void end_transaction() {
    disable_timeout(STATEMENT_TIMEOUT, false);
    PopActiveSnapshot();
    SetUserIdAndSecContext(GetUserId(), 0);
    CommitTransactionCommand();
    (void)pgstat_report_stat(true);
}

// Halved with each failure in a row: a batch that takes too long would never finish.
int batch_size(const Report& report) {
    return Max(config::cleanup_batch_size >> Min(report.failures_before, 20), 1);
}

// A table other than the records. DDL on it also goes first.
bool lock_side_table(const char* name) {
    Oid table = pg::find_table(name);
    return OidIsValid(table) && ConditionalLockRelationOid(table, RowExclusiveLock) &&
           SearchSysCacheExists1(RELOID, ObjectIdGetDatum(table));
}

// Removes rows of a side table with the remainder of a batch.
std::int64_t sweep_beside(const char* name, std::int64_t (*sweep)(std::int64_t),
                          std::int64_t limit) {
    return lock_side_table(name) ? sweep(limit) : 0;
}

// One batch, one transaction.
Visit sweep_batch(Report* report, std::int64_t* total, std::int64_t end) {
    begin_transaction(end);
    Visit visit = enter_table();
    if (visit == Visit::More) {
        store::Sweep which{report->from,
                           GetCurrentTimestamp() - config::cleanup_grace * core::kSecond,
                           batch_size(*report), stats::count_swept};
        store::Swept swept = store::sweep(which);
        std::int64_t rows = swept.rows;
        rows += sweep_beside(store::kAttemptTable, store::sweep_attempts, which.limit - rows);
        rows += sweep_beside(store::kAuditTable, store::sweep_audit, which.limit - rows);
        end_transaction();
        report->from = swept.last;
        *total += rows;
        return rows < which.limit ? Visit::Drained : Visit::More;
    }
    end_transaction();
    return visit;
}

// Rests until the visit ends. The launcher adds the remainder to the gap before the next sweeper:
// resting needs no connection.
void rest(Report* report, std::int64_t worked, std::int64_t end) {
    std::int64_t due = core::rest_after(worked, report->behind);
    std::int64_t here = Min(due, Max(end - pg::monotonic_micros(), 0));
    report->rest = due - here;
    if (here > 0) nap(here, PG_WAIT_EXTENSION);
}

Visit sweep(Report* report, std::int64_t* total, std::int64_t start) {
    Visit visit = Visit::More;
    for (std::int64_t now = start; visit == Visit::More && now < start + kVisit;) {
        visit = sweep_batch(report, total, start + kLongestVisit);
        if (visit == Visit::More) rest(report, pg::monotonic_micros() - now, start + kVisit);
        CHECK_FOR_INTERRUPTS();
        reload_if_asked();
        now = pg::monotonic_micros();
    }
    return visit;
}

Visit abandon_batch(Report* report, std::int64_t end) {
    begin_transaction(end);
    Visit visit = enter_table();
    if (visit == Visit::More && claim::abandon(&report->walk, batch_size(*report)).at_end)
        visit = Visit::Drained;
    end_transaction();
    return visit;
}

// A decision is linked in a later transaction than its own, and a link is logged in a later one
// than that which made it.
Visit link_batch(Report*, std::int64_t end) {
    begin_transaction(end);
    Visit visit = enter_table();
    if (visit == Visit::More &&
        !(lock_side_table(store::kAuditTable) && store::link_decisions(config::cleanup_batch_size)))
        visit = Visit::Drained;
    end_transaction();
    return visit;
}

// At least one batch, however long the sweep took.
Visit go_on(Report* report, std::int64_t start, Visit (*batch)(Report*, std::int64_t)) {
    Visit visit = Visit::More;
    std::int64_t now = pg::monotonic_micros();
    do {
        visit = batch(report, start + kLongestVisit);
        if (visit == Visit::More) rest(report, pg::monotonic_micros() - now, start + kVisit);
        CHECK_FOR_INTERRUPTS();
        reload_if_asked();
        now = pg::monotonic_micros();
    } while (visit == Visit::More && now < start + kVisit);
    return visit;
}

// ---- when to come again ----

TimestampTz next_beside(const char* name, TimestampTz (*next)()) {
    return lock_side_table(name) ? next() : DT_NOBEGIN;
}

TimestampTz next_of_all() {
    TimestampTz record = store::next_expired_record();
    TimestampTz claim = claim::next_abandonment();
    TimestampTz attempt = next_beside(store::kAttemptTable, store::next_expired_attempt);
    TimestampTz audit = next_beside(store::kAuditTable, store::next_audit);
    return Min(Min(record, claim), Min(attempt, audit));
}

// A visit that removed records has written, so another visit follows anyway.
void look_ahead(Report* report, std::int64_t rows, std::int64_t start) {
    if (rows > 0 || pg::monotonic_micros() >= start + kVisit) return;
    begin_transaction(start + kLongestVisit);
    if (enter_table() == Visit::More) report->next = next_of_all();
    end_transaction();
}

// ---- the journal: one row per database, in the database itself, so that it can be read however
// the library was loaded, and on a standby ----

struct JournalEntry {
    TimestampTz started;
    std::int64_t start;  // the same moment by the monotonic clock
    std::int64_t rows;
    const char* error;  // nullptr: none
};

constexpr const char* kJournalTable = "journal";

constexpr Oid kTypes[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, TEXTOID};

// $1 start, $2 end, $3 rows, $4 error. The last error stays visible after the next successful run,
// with "failures" back at zero.
pg::Statement write_entry = {R"(
    UPDATE idempotency.journal SET
        last_run = $1, last_duration = $2 - $1, last_rows = $3, total_rows = total_rows + $3,
        failures = CASE WHEN $4 IS NULL THEN 0 ELSE failures + 1 END,
        last_error = COALESCE($4, last_error),
        last_error_at = CASE WHEN $4 IS NULL THEN last_error_at ELSE $2 END
    WHERE $3 > 0 OR $4 IS NOT NULL OR failures > 0
        OR last_run IS NULL OR last_run > $1 OR last_run < $1 - '10 minutes'::interval)",
                             4, kTypes, pg::Access::Whole, nullptr};

// In the caller's transaction. Writes a run that found nothing only every ten minutes: an idle
// database should cost almost nothing.
void write_journal(const JournalEntry& entry) {
    TimestampTz ended = entry.started + (pg::monotonic_micros() - entry.start);
    Datum values[] = {TimestampTzGetDatum(entry.started), TimestampTzGetDatum(ended),
                      Int64GetDatum(entry.rows),
                      entry.error == nullptr ? 0 : CStringGetTextDatum(entry.error)};
    char nulls[] = {' ', ' ', ' ', entry.error == nullptr ? 'n' : ' '};
    (void)pg::write_alone(kJournalTable, &write_entry, values, nulls);
}

void note_in_journal(const JournalEntry& entry) {
    begin_transaction(Max(entry.start + kLongestVisit, pg::monotonic_micros() + kForJournal));
    if (enter_table() == Visit::More) write_journal(entry);
    end_transaction();
}

// A sweep that reached its end starts from the beginning in the next visit.
Visit sweep_abandon_and_link(Report* report, JournalEntry* entry) {
    Visit swept = sweep(report, &entry->rows, entry->start);
    if (swept != Visit::Drained && swept != Visit::More) return swept;
    if (swept == Visit::Drained) report->from = DT_NOBEGIN;
    for (auto* batch : {abandon_batch, link_batch}) {
        Visit visit = go_on(report, entry->start, batch);
        if (visit != Visit::Drained) swept = visit;
    }
    return swept;
}

void visit_database(Report* report, JournalEntry* entry) {
    if (!become_sweeper()) {
        report->visit = Visit::Busy;
        return;
    }
    pgstat_report_activity(STATE_RUNNING, "removing expired records");
    Visit visit = sweep_abandon_and_link(report, entry);
    // Only a write makes work here: it creates the extension, or drops the subscription.
    if (visit == Visit::NoExtension || visit == Visit::NotOurs) report->next = DT_NOEND;
    if (visit == Visit::Drained) look_ahead(report, entry->rows, entry->start);
    if (visit == Visit::Drained || visit == Visit::More) note_in_journal(*entry);
    report->visit = visit;
}

// Cleans up after an error. The message survives in `context`.
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

// Runs a step. nullptr on success, else the message of its error.
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

// An error ends the visit, not the server: the launcher sends another sweeper after a pause. Only
// the first of a streak is logged; the journal has the last, if it can be written.
void visit_guarded(Report* report) {
    bool log = report->failures_before == 0;
    JournalEntry entry{GetCurrentTimestamp(), pg::monotonic_micros(), 0, nullptr};
    entry.error = run_guarded([report, &entry] { visit_database(report, &entry); }, log);
    if (entry.error == nullptr) return;
    report->visit = Visit::Failed;
    (void)run_guarded([&entry] { note_in_journal(entry); }, false);
}

// The database's OID: the message may lack it, and without a connection nothing else says it.
void add_context(void* database) {
    errcontext("idempotency sweeper of database %u", *static_cast<Oid*>(database));
}

// Without a connection there is nothing to clean up: the process ends.
void connect(const SweeperOrder& order, Report* report) {
    PG_TRY();
    { BackgroundWorkerInitializeConnectionByOid(order.database, InvalidOid, 0); }
    PG_CATCH();
    {
        HOLD_INTERRUPTS();
        report->visit = Visit::Failed;
        if (report->failures_before == 0) EmitErrorReport();
        proc_exit(0);
    }
    PG_END_TRY();
}

void run(SweeperOrder order, dsm_segment* segment) {
    auto* report = static_cast<Report*>(dsm_segment_address(segment));
    ErrorContextCallback context{error_context_stack, add_context, &order.database};
    error_context_stack = &context;
    apply_settings();
    connect(order, report);
    visit_guarded(report);
    error_context_stack = context.previous;
}

}  // namespace

}  // namespace idem::worker

extern "C" {
__attribute__((visibility("default"))) void idem_sweeper_main(Datum);

// Entry point of a sweeper. It is never restarted; the launcher starts another when one is due.
void idem_sweeper_main(Datum) {
    idem::worker::SweeperOrder order;
    memcpy(&order, MyBgworkerEntry->bgw_extra, sizeof(order));
    idem::worker::accept_signals();
    dsm_segment* segment = dsm_attach(order.report);
    // The launcher that sent us has ended.
    if (segment == nullptr) proc_exit(0);
    dsm_pin_mapping(segment);
    idem::worker::run(order, segment);
    proc_exit(0);
}
}
