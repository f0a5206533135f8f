#include "worker/quiet.hpp"

#include "core/time.hpp"

#include "pg/wait.hpp"

namespace idem::worker {

namespace {

// A database is visited at least this often.
constexpr std::int64_t kLongestQuiet = 300 * core::kSecond;

// The current counters. A database that never had a connection has none. If stats_fetch_consistency
// is "none", the entry is a copy in the current memory context, and the launcher's would live as
// long as the launcher.
pg::WriteCounts writes_in(Oid database) {
    pgstat_clear_snapshot();
    MemoryContext context =
        AllocSetContextCreate(CurrentMemoryContext, "idempotency counts", ALLOCSET_SMALL_SIZES);
    MemoryContext previous = MemoryContextSwitchTo(context);
    const PgStat_StatDBEntry* entry = pgstat_fetch_stat_dbentry(database);
    pg::WriteCounts counts = entry == nullptr ? pg::WriteCounts{} : pg::write_counts(*entry);
    MemoryContextSwitchTo(previous);
    MemoryContextDelete(context);
    return counts;
}

bool same(const pg::WriteCounts& a, const pg::WriteCounts& b) {
    return a.inserted == b.inserted && a.updated == b.updated && a.deleted == b.deleted &&
           a.since == b.since;
}

}  // namespace

Quiet before_visit(Oid database) {
    return {writes_in(database), pg::monotonic_micros(), DT_NOBEGIN};
}

bool is_quiet(Oid database, const Quiet& quiet) {
    return pgstat_track_counts && GetCurrentTimestamp() < quiet.until &&
           pg::monotonic_micros() - quiet.visited < kLongestQuiet &&
           same(writes_in(database), quiet.writes);
}

}  // namespace idem::worker
