#include "worker/databases.hpp"

#include "core/time.hpp"

#include "config/settings.hpp"
#include "pg/wait.hpp"

namespace idem::worker {

namespace {

// ---- the list ----

constexpr std::int64_t kNoLag = PG_INT64_MAX;

bool is_swept(Form_pg_database form) {
    return form->datallowconn && !form->datistemplate && !pg::is_invalid_database(form);
}

Database known_or_new(const Databases& known, Oid oid) {
    const Database* database = find_database(known, oid);
    if (database != nullptr) return *database;
    return {oid, 0, 0, DT_NOBEGIN, {}, kNoLag, {{}, 0, DT_NOBEGIN}};
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

// ---- when to visit ----

// A database must be without a sweeper now and then: DROP DATABASE checks ten times a second that
// no session is connected, and gives up after five seconds.
constexpr std::int64_t kGap = 250 * core::kMillisecond;
constexpr std::int64_t kBusyPause = core::kSecond;
constexpr std::int64_t kLongestBackoff = 300 * core::kSecond;
// Databases without the extension are visited at this many intervals.
constexpr int kRediscovery = 10;

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

// Keeps the smallest age of the oldest remaining record since the backlog began: it may have been
// old then.
void note_lag(Database* database) {
    database->lag = database->from == DT_NOBEGIN ? kNoLag : Min(database->lag, lag(*database));
}

}  // namespace

// pg_database is the only catalog that can be read without a connection to a database. Read in its
// own transaction. The launcher does not wait for a lock on it, VACUUM FULL's for example.
void refresh_databases(Databases* databases) {
    StartTransactionCommand();
    if (ConditionalLockRelationOid(DatabaseRelationId, AccessShareLock)) {
        Databases fresh = read_databases(*databases);
        if (databases->items != nullptr) pfree(databases->items);
        *databases = fresh;
    }
    CommitTransactionCommand();
}

Database* find_database(const Databases& databases, Oid oid) {
    for (int i = 0; i < databases.count; i++)
        if (databases.items[i].oid == oid) return &databases.items[i];
    return nullptr;
}

std::int64_t interval() {
    return config::cleanup_interval * core::kSecond;
}

void pause(Database* database, std::int64_t micros) {
    database->due = pg::monotonic_micros() + micros;
}

Report order_for(const Database& database) {
    return {Visit::Started, database.failures, database.from, behind(database), database.walk, 0,
            DT_NOBEGIN};
}

void note_visit(Database* database, const Report& report) {
    database->failures = failed(report.visit) ? database->failures + 1 : 0;
    // After an error the next visit continues where the visit's removals ended.
    database->from = report.visit == Visit::More || failed(report.visit) ? report.from : DT_NOBEGIN;
    database->walk = report.walk;
    database->quiet.until = report.next;
    note_lag(database);
    pause(database, pause_after(*database, report));
}

void note_reload(Databases* databases) {
    if (config::cleanup_interval == 0) return;
    std::int64_t latest = pg::monotonic_micros() + interval();
    for (int i = 0; i < databases->count; i++) {
        Database* database = &databases->items[i];
        if (database->failures == 0) database->due = Min(database->due, latest);
        database->quiet.until = DT_NOBEGIN;
    }
}

}  // namespace idem::worker
