#include "worker/presence.hpp"

#include "core/time.hpp"
#include "core/visible.hpp"

#include "config/settings.hpp"
#include "pg/wait.hpp"
#include "worker/process.hpp"

namespace idem::worker {

namespace {

constexpr std::int64_t kPauseBetweenTries = 60 * core::kSecond;

bool preloaded = false;

// The launcher serves all databases and is connected to none: its lock tag has no database.
LOCKTAG worker_tag(Oid database) {
    LOCKTAG tag;
    SET_LOCKTAG_ADVISORY(tag, database, 0, 0, core::kWorkerLockClass);
    return tag;
}

bool take_for_life(Oid database) {
    LOCKTAG tag = worker_tag(database);
    return LockAcquire(&tag, ExclusiveLock, true, true) != LOCKACQUIRE_NOT_AVAIL;
}

// A launcher that starts at the moment of this check fails to get the lock, takes us for another
// launcher and exits for good. But then we found no launcher, and start one.
bool launcher_runs() {
    LOCKTAG tag = worker_tag(InvalidOid);
    if (LockAcquire(&tag, ShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL) return true;
    (void)LockRelease(&tag, ShareLock, false);
    return false;
}

void log_shortage() {
    static bool logged = false;
    if (!logged)
        ereport(LOG, (errmsg("idempotency: no free worker slot for the launcher"),
                      errdetail("Expired records stay until there is one."),
                      errhint("Raise max_worker_processes, or call idem_cleanup regularly.")));
    logged = true;
}

bool start_launcher() {
    BackgroundWorker worker;
    describe_launcher(&worker);
    if (RegisterDynamicBackgroundWorker(&worker, nullptr)) return true;
    log_shortage();
    return false;
}

// On a standby no worker is registered: the postmaster would not start it before promotion, and
// each try would keep a worker slot until then.
bool may_start() {
    return !preloaded && !IsBinaryUpgrade && config::cleanup_interval > 0 && !RecoveryInProgress();
}

}  // namespace

void register_launcher_at_start() {
    preloaded = true;
    BackgroundWorker worker;
    describe_launcher(&worker);
    RegisterBackgroundWorker(&worker);
}

// Several backends may find no launcher at the same moment and register one each. All but one of
// those find the launcher's lock held and exit at once.
void ensure_launcher() {
    static bool settled = false;
    static std::int64_t next_try = 0;
    if (settled || !may_start()) return;
    std::int64_t now = pg::monotonic_micros();
    if (now < next_try) return;
    next_try = now + kPauseBetweenTries;
    settled = launcher_runs() || start_launcher();
}

bool become_launcher() {
    return take_for_life(InvalidOid);
}

bool become_sweeper() {
    return take_for_life(MyDatabaseId);
}

}  // namespace idem::worker
