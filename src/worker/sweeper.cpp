// A sweeper: visits one database, removes what is past its retention in small transactions, and
// ends. It never stays: a worker that is connected stands in the way of DROP DATABASE.
//
// It is a worker as autovacuum's is (AutoVacWorkerMain: settings that no database or role may
// change, which must be in force before InitPostgres), its transactions begin and end as
// PostgresMain's do, with statement_timeout as the alarm, and an error is cleaned up as
// PostgresMain's handler does it.
//
// What holds at any time:
// - One sweeper works in a database: the lock of presence.hpp is taken before anything is looked
//   at. The launcher that sent it may have ended, and the next one sent another.
// - In a batch the table is locked (RowExclusiveLock) without waiting, so DDL goes first; what the
//   OID means is asked again under the lock, for DROP EXTENSION may have come before.
// - A row that somebody has locked is passed over (SKIP LOCKED): nobody who decides about a key is
//   waited for.
// - Claims that nobody came back for are looked for when what is past its retention is gone, or the
//   time for it is over, so that what goes wrong there does not keep anything from being removed.
// - Whatever ends it, the report says how far it came: it is written after each commit.

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

// A visit begins no batch after that even if there is more to do.
constexpr std::int64_t kVisit = 2 * core::kSecond;
// And no transaction of it goes on for longer than that: sweepers are few, so other databases wait
// for our end and, for five seconds, DROP DATABASE. Nobody who holds a row or keeps a trigger
// running may stop them.
constexpr std::int64_t kLongestVisit = 4 * core::kSecond;
// What the journal gets even then.
constexpr std::int64_t kForJournal = core::kSecond / 2;

// As autovacuum does: what the database or the role has set is meant for its users. A deletion that
// a crash forgets is made again, so no commit waits for disk or standby. They are in force before
// we are connected, which takes locks, too: whoever renames or copies the database has them.
constexpr const char* kSettings[][2] = {
    {"lock_timeout", "1000"},
    {"synchronous_commit", "off"},
    {"default_transaction_isolation", "read committed"},
    {"default_transaction_read_only", "off"},
    {"default_transaction_deferrable", "off"},
    {"jit", "off"},
    // From server 17 on: it would end the process, and ours has limits of its own.
    {"transaction_timeout", "0"},
};

void apply_settings() {
    for (const auto& [name, value] : kSettings)
        if (GetConfigOption(name, true, false) != nullptr)
            SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

// Rows that come from another server go when they go there. If we removed one before, and its key
// is used again over there, the change would find no row here.
bool is_subscribed(Oid table) {
    CatCList* subscriptions = SearchSysCacheList1(SUBSCRIPTIONRELMAP, ObjectIdGetDatum(table));
    bool any = subscriptions->n_members > 0;
    ReleaseSysCacheList(subscriptions);
    return any;
}

// Whether the extension is here, and its table is not under DDL. A schema of our name that does
// not belong to the extension is none of our business. The lock is kept until the commit.
Visit enter_table() {
    Oid extension = get_extension_oid(pg::kExtension, true);
    Oid table = pg::find_table(store::kRecordTable);
    if (!OidIsValid(extension) || !OidIsValid(table) ||
        getExtensionOfObject(RelationRelationId, table) != extension)
        return Visit::NoExtension;
    if (!ConditionalLockRelationOid(table, RowExclusiveLock)) return Visit::Busy;
    // It may have been dropped while we came for the lock.
    if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(table))) return Visit::NoExtension;
    return is_subscribed(table) ? Visit::NotOurs : Visit::More;
}

// A security-restricted operation: a deferred trigger, which would run at commit with the rights of
// the bootstrap superuser, is refused. STATEMENT_TIMEOUT cancels what is still running at `end`.
void begin_transaction(std::int64_t end) {
    std::int64_t left = (end - pg::monotonic_micros()) / core::kMillisecond;
    SetCurrentStatementStartTimestamp();
    StartTransactionCommand();
    SetUserIdAndSecContext(GetUserId(), SECURITY_RESTRICTED_OPERATION);
    PushActiveSnapshot(GetTransactionSnapshot());
    enable_timeout_after(STATEMENT_TIMEOUT, static_cast<int>(Max(left, 1)));
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
    return Max(config::cleanup_batch_size >> Min(report.failures_before, 20), 1);
}

// A table beside the records. DDL on it goes first as well.
bool lock_side_table(const char* name) {
    Oid table = pg::find_table(name);
    return OidIsValid(table) && ConditionalLockRelationOid(table, RowExclusiveLock) &&
           SearchSysCacheExists1(RELOID, ObjectIdGetDatum(table));
}

// What is left of a batch.
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

// Rests until the visit is over. What is left then the launcher lets pass before it sends the next
// sweeper: resting takes no connection.
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

// At least one batch, however long the sweep was.
Visit abandon(Report* report, std::int64_t start) {
    Visit visit = Visit::More;
    std::int64_t now = pg::monotonic_micros();
    do {
        visit = abandon_batch(report, start + kLongestVisit);
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
    TimestampTz audit = next_beside(store::kAuditTable, store::next_expired_audit);
    return Min(Min(record, claim), Min(attempt, audit));
}

// A visit that has removed something has written itself, so that another one comes anyway.
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

// $1 start, $2 end, $3 rows, $4 error. The last error stays visible after the next good run, with
// "failures" back at zero.
constexpr pg::SqlText write_sql() {
    pg::SqlText sql{};
    sql.add("UPDATE ");
    sql.table(kJournalTable);
    sql.add(
        " SET last_run = $1,"
        " last_duration = $2 OPERATOR(pg_catalog.-) $1, last_rows = $3,"
        " total_rows = total_rows OPERATOR(pg_catalog.+) $3,"
        " failures = CASE WHEN $4 IS NULL THEN 0 ELSE failures OPERATOR(pg_catalog.+) 1 END,"
        " last_error = COALESCE($4, last_error),"
        " last_error_at = CASE WHEN $4 IS NULL THEN last_error_at ELSE $2 END"
        " WHERE $3 OPERATOR(pg_catalog.>) 0 OR $4 IS NOT NULL"
        " OR failures OPERATOR(pg_catalog.>) 0 OR last_run IS NULL"
        " OR last_run OPERATOR(pg_catalog.>) $1"
        " OR last_run OPERATOR(pg_catalog.<)"
        " ($1 OPERATOR(pg_catalog.-) '10 minutes'::pg_catalog.interval)");
    return sql;
}

constexpr pg::SqlText kWrite = write_sql();

pg::Statement write_entry = {kWrite.text, 4, kTypes, pg::Access::Whole, nullptr};

// In the caller's transaction. A run that found nothing is written only now and then: an idle
// database should cost next to nothing.
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

// Where the sweep has come to its end, it begins anew with the next visit.
Visit sweep_and_abandon(Report* report, JournalEntry* entry) {
    Visit swept = sweep(report, &entry->rows, entry->start);
    if (swept != Visit::Drained && swept != Visit::More) return swept;
    if (swept == Visit::Drained) report->from = DT_NOBEGIN;
    Visit abandoned = abandon(report, entry->start);
    return abandoned == Visit::Drained ? swept : abandoned;
}

void visit_database(Report* report, JournalEntry* entry) {
    if (!become_sweeper()) {
        report->visit = Visit::Busy;
        return;
    }
    pgstat_report_activity(STATE_RUNNING, "removing expired records");
    Visit visit = sweep_and_abandon(report, entry);
    // Nothing is due here unless somebody writes: creates the extension, drops the subscription.
    if (visit == Visit::NoExtension || visit == Visit::NotOurs) report->next = DT_NOEND;
    if (visit == Visit::Drained) look_ahead(report, entry->rows, entry->start);
    if (visit == Visit::Drained || visit == Visit::More) note_in_journal(*entry);
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
    JournalEntry entry{GetCurrentTimestamp(), pg::monotonic_micros(), 0, nullptr};
    entry.error = run_guarded([report, &entry] { visit_database(report, &entry); }, log);
    if (entry.error == nullptr) return;
    report->visit = Visit::Failed;
    (void)run_guarded([&entry] { note_in_journal(entry); }, false);
}

// Which database, for the messages do not say it, and where there is no way in nothing else does.
void add_context(void* database) {
    errcontext("idempotency sweeper of database %u", *static_cast<Oid*>(database));
}

// Without a way in there is nothing to clean up: the process ends.
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

// Entry point of a sweeper. It is never restarted; the launcher starts another when it is due.
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
