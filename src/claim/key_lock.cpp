#include "claim/key_lock.hpp"

#include "core/duration.hpp"

#include "claim/lock_tag.hpp"

namespace idem::claim {

namespace {

// Locks are owned by the (sub)transaction itself, not by the running query's portal, so that a
// later statement of the same (sub)transaction can give them back.
LockAcquireResult acquire(const LOCKTAG& tag, bool dont_wait) {
    ResourceOwner portal_owner = CurrentResourceOwner;
    CurrentResourceOwner = CurTransactionResourceOwner;
    LockAcquireResult result = LockAcquire(&tag, ExclusiveLock, false, dont_wait);
    CurrentResourceOwner = portal_owner;
    return result;
}

// The milliseconds to hand to lock_timeout, or 0 if the caller's own lock_timeout is shorter: then
// its error is what the caller asked for.
int timeout_for(std::int64_t micros) {
    std::int64_t millis = (micros + core::kMillisecond - 1) / core::kMillisecond;
    if (LockTimeout > 0 && LockTimeout <= millis)
        return 0;
    return static_cast<int>(Max(millis, 1));
}

void set_lock_timeout(int millis) {
    char value[16];
    snprintf(value, sizeof(value), "%d", millis);
    (void)set_config_option("lock_timeout", value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
                            true, 0, false);
}

// Ends the subtransaction that an error broke off, and says whether it was our own timeout.
bool swallow_timeout(MemoryContext context, ResourceOwner owner) {
    MemoryContextSwitchTo(context);
    ErrorData* error = CopyErrorData();
    FlushErrorState();
    RollbackAndReleaseCurrentSubTransaction();
    MemoryContextSwitchTo(context);
    CurrentResourceOwner = owner;
    if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
        ReThrowError(error);
    FreeErrorData(error);
    return true;
}

}  // namespace

bool try_lock(const store::Identity& id) {
    return acquire(lock_tag(id, kClaimClass), true) != LOCKACQUIRE_NOT_AVAIL;
}

void lock(const store::Identity& id) {
    (void)acquire(lock_tag(id, kClaimClass), false);
}

// The server can only end a lock wait with an error, so the wait runs in a subtransaction of its
// own, which is rolled back when lock_timeout ends it. The lock outlives its successful end.
bool lock_within(const store::Identity& id, std::int64_t micros) {
    int millis = timeout_for(micros);
    if (millis == 0) {
        lock(id);
        return true;
    }
    MemoryContext context = CurrentMemoryContext;
    ResourceOwner owner = CurrentResourceOwner;
    volatile bool timed_out = false;
    BeginInternalSubTransaction(nullptr);
    PG_TRY();
    {
        int guc_level = NewGUCNestLevel();
        set_lock_timeout(millis);
        lock(id);
        AtEOXact_GUC(false, guc_level);
        ReleaseCurrentSubTransaction();
        MemoryContextSwitchTo(context);
        CurrentResourceOwner = owner;
    }
    PG_CATCH();
    {
        timed_out = swallow_timeout(context, owner);
    }
    PG_END_TRY();
    return !timed_out;
}

void unlock(const store::Identity& id) {
    LOCKTAG tag = lock_tag(id, kClaimClass);
    ResourceOwner portal_owner = CurrentResourceOwner;
    CurrentResourceOwner = CurTransactionResourceOwner;
    (void)LockRelease(&tag, ExclusiveLock, false);
    CurrentResourceOwner = portal_owner;
}

}  // namespace idem::claim
