// The lock is taken as pg_advisory_xact_lock takes its own (lockfuncs.c), with three differences: a
// class of ours, an owner that lasts as long as the (sub)transaction and not the portal, and a wait
// that can be bounded.
//
// The transaction that has the lock of a key decides about it alone, with two exceptions, and both
// show in the row. A heap store's transaction that has written the row may give the lock back
// before it commits: then its xid is in the row, and it is waited for as a writer. And a session
// that writes the table by hand knows nothing of the lock: for them the row is compared again with
// each write.

#include "claim/locks.hpp"

#include "core/time.hpp"
#include "core/visible.hpp"

#include "claim/waiters.hpp"
#include "pg/wait.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

constexpr std::int64_t kFirstPause = 5 * core::kMillisecond;
constexpr std::int64_t kLongestPause = 500 * core::kMillisecond;

// Of a session that is woken: for claims that end without waking it.
constexpr std::int64_t kLongestSleep = 10 * core::kSecond;

LOCKTAG lock_tag(const store::Identity& id) {
    LOCKTAG tag;
    SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, static_cast<uint32>(id.hash >> 32),
                         static_cast<uint32>(id.hash), core::kClaimLockClass);
    return tag;
}

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

}  // namespace

bool try_lock(const store::Identity& id) {
    LOCKTAG tag = lock_tag(id);
    return as_transaction([&] {
        return LockAcquire(&tag, ExclusiveLock, false, /* dontWait */ true) !=
               LOCKACQUIRE_NOT_AVAIL;
    });
}

bool try_lock_if_room(const store::Identity& id) {
    LOCKTAG tag = lock_tag(id);
    return as_transaction([&] { return pg::lock_if_room(tag, ExclusiveLock); });
}

void lock(const store::Identity& id) {
    LOCKTAG tag = lock_tag(id);
    (void)as_transaction([&] { return LockAcquire(&tag, ExclusiveLock, false, false); });
}

void unlock(const store::Identity& id) {
    LOCKTAG tag = lock_tag(id);
    (void)as_transaction([&] { return LockRelease(&tag, ExclusiveLock, false); });
}

// The writer may have given the lock back and need it again, so it is waited for without the lock.
bool lock_and_find(const store::Identity& id, store::Record* record) {
    for (;;) {
        lock(id);
        store::Look look = store::find(id, record);
        if (!TransactionIdIsValid(look.writer)) return look.found;
        unlock(id);
        pg::wait_for_transaction(look.writer);
    }
}

// The lock's own partition of the lock table is looked at, as CREATE INDEX CONCURRENTLY looks for
// whom to wait for. Its count of those who ask has the one who was given it as well.
KeyHolder holder_of_lock(const store::Identity& id) {
    LOCKTAG tag = lock_tag(id);
    const VirtualTransactionId* holders = GetLockConflicts(&tag, ExclusiveLock, nullptr);
    KeyHolder holder{};
    if (!VirtualTransactionIdIsValid(*holders)) return holder;
    holder.exists = true;
    // A prepared transaction keeps the number that it had in its session, which may be in another
    // one by now; only after a restart has it none but its transaction id.
    bool more;
    holder.prepared = VirtualTransactionIdIsRecoveredPreparedXact(*holders)
                          ? holders->localTransactionId
                          : TwoPhaseGetXidByVirtualXID(*holders, &more);
    if (!TransactionIdIsValid(holder.prepared)) holder.pid = pg::pid_of(*holders);
    holder.waiting = Max(LockWaiterCount(&tag) - 1, 0);
    return holder;
}

// A process of none of the server's backends has an id of 0: that of a prepared transaction, on a
// standby that of any, and that of one that has ended since its row was seen.
KeyHolder holder_of_row(TransactionId writer) {
    KeyHolder holder{};
    TransactionId top = SubTransGetTopmostTransaction(writer);
    holder.exists = true;
    holder.pid = BackendXidGetPid(top);
    if (holder.pid == 0 && !RecoveryInProgress() && TransactionIdIsInProgress(top))
        holder.prepared = top;
    return holder;
}

KeyHolder this_transaction() {
    KeyHolder holder{};
    holder.exists = true;
    holder.is_own = true;
    holder.pid = MyProcPid;
    return holder;
}

Patience patience_for(std::int64_t wait) {
    std::int64_t now = pg::monotonic_micros();
    return {now, wait == kForEver ? kForEver : now + wait, 0, 0, kFirstPause, false, false, false};
}

std::int64_t time_left(const Patience& patience) {
    if (patience.gave_way) return 0;
    if (patience.deadline == kForEver) return kForEver;
    return patience.deadline - pg::monotonic_micros();
}

bool wait_for_lock(const store::Identity& id, std::int64_t left) {
    store::Identity wanted = id;
    auto take = [](void* key) { lock(*static_cast<const store::Identity*>(key)); };
    if (left != kForEver) return pg::wait_at_most(left, take, &wanted);
    lock(id);
    return true;
}

void wait_for_writer(TransactionId writer, std::int64_t left) {
    auto wait = [](void* transaction) {
        pg::wait_for_transaction(*static_cast<const TransactionId*>(transaction));
    };
    if (left == kForEver)
        pg::wait_for_transaction(writer);
    else
        (void)pg::wait_at_most(left, wait, &writer);
}

void wait_for_lease(const store::Record& leased, Patience* patience, std::int64_t left) {
    const std::int64_t deadlock_timeout = DeadlockTimeout * core::kMillisecond;
    std::int64_t now = pg::monotonic_micros();
    if (patience->lease_wait_start == 0) {
        patience->lease_wait_start = now;
        patience->next_check = now + deadlock_timeout;
        // The claim may have ended since the look: another one, before the first sleep.
        patience->is_noted = note_waiting(leased.id);
        if (patience->is_noted) return;
    }
    std::int64_t until_timeout =
        LockTimeout == 0 ? kForEver
                         : patience->lease_wait_start + LockTimeout * core::kMillisecond - now;
    if (until_timeout <= 0)
        ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
                        errmsg("canceling statement due to lock timeout"),
                        errdetail("The claim that it waited for is still leased.")));
    std::int64_t until_check = patience->next_check - now;
    std::int64_t until_expiry = leased.lease_until - GetCurrentTimestamp();
    std::int64_t pause =
        patience->is_noted && until_expiry > 0 ? Min(kLongestSleep, until_expiry) : patience->pause;
    pause = Min(Min(pause, left), Min(until_timeout, until_check));
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
                    static_cast<long>(Max(pause / core::kMillisecond, 1)), PG_WAIT_EXTENSION);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
    patience->pause = Min(patience->pause * 2, kLongestPause);
    // A lease is no lock, so CheckDeadLock() does not see which sessions wait for it. Those that
    // wait for a key of this transaction are left out: they are repeats as a rule, and repeats hold
    // no lease.
    now = pg::monotonic_micros();
    if (now < patience->next_check) return;
    patience->next_check = now + deadlock_timeout;
    patience->gave_way = pg::is_waited_for(core::kClaimLockClass);
}

}  // namespace idem::claim
