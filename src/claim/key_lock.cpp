#include "claim/key_lock.hpp"

#include "core/duration.hpp"

#include "claim/lock_tag.hpp"
#include "pg/internal.hpp"
#include "pg/subtransaction.hpp"

namespace idem::claim {

namespace {

// Locks are owned by the (sub)transaction itself, not by the running query's portal, so that a
// later statement of the same (sub)transaction can give them back. After an error the abort sets
// the owner right.
template <typename Action>
auto as_transaction(Action action) {
    ResourceOwner portal_owner = CurrentResourceOwner;
    CurrentResourceOwner = CurTransactionResourceOwner;
    auto result = action();
    CurrentResourceOwner = portal_owner;
    return result;
}

LockAcquireResult acquire(const store::Identity& id, bool dont_wait) {
    LOCKTAG tag = lock_tag(id, kClaimClass);
    return as_transaction([&] { return LockAcquire(&tag, ExclusiveLock, false, dont_wait); });
}

// The milliseconds to hand to lock_timeout, or 0 if the caller's own lock_timeout is shorter: then
// its error is what the caller asked for.
int timeout_for(std::int64_t micros) {
    std::int64_t millis = (micros + core::kMillisecond - 1) / core::kMillisecond;
    if (LockTimeout > 0 && LockTimeout <= millis) return 0;
    return static_cast<int>(Max(millis, 1));
}

void lock_with_timeout(const store::Identity& id, int millis) {
    char value[16];
    snprintf(value, sizeof(value), "%d", millis);
    int guc_level = NewGUCNestLevel();
    pg::set_locally("lock_timeout", value);
    lock(id);
    AtEOXact_GUC(false, guc_level);
}

// Our own timeout is an answer; anything else is the caller's to see.
void swallow_timeout(const pg::Subtransaction& outer) {
    ErrorData* error = pg::abort_subtransaction(outer);
    if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE) ReThrowError(error);
    FreeErrorData(error);
}

}  // namespace

bool try_lock(const store::Identity& id) {
    return acquire(id, true) != LOCKACQUIRE_NOT_AVAIL;
}

void lock(const store::Identity& id) {
    (void)acquire(id, false);
}

// The server can only end a lock wait with an error, so the wait runs in a subtransaction of its
// own, which is rolled back when lock_timeout ends it. The lock outlives its successful end.
bool lock_within(const store::Identity& id, std::int64_t micros) {
    int millis = timeout_for(micros);
    if (millis == 0) {
        lock(id);
        return true;
    }
    volatile bool timed_out = false;
    pg::Subtransaction outer = pg::begin_subtransaction();
    PG_TRY();
    {
        lock_with_timeout(id, millis);
        pg::commit_subtransaction(outer);
    }
    PG_CATCH();
    {
        swallow_timeout(outer);
        timed_out = true;
    }
    PG_END_TRY();
    return !timed_out;
}

void unlock(const store::Identity& id) {
    LOCKTAG tag = lock_tag(id, kClaimClass);
    (void)as_transaction([&] { return LockRelease(&tag, ExclusiveLock, false); });
}

}  // namespace idem::claim
