// lock_timeout is the only limit of a wait in the lock manager, and it raises an error. So a
// bounded wait is a subtransaction in which lock_timeout is set: PL/pgSQL's exception block around
// a SET LOCAL.

#include "pg/wait.hpp"

#include "core/time.hpp"

#include "pg/boundary.hpp"
#include "pg/owner.hpp"

namespace idem::pg {

namespace {

// The milliseconds for lock_timeout, or 0 if the caller's own lock_timeout is shorter: then the
// caller gets its error.
int timeout_for(std::int64_t micros) {
    std::int64_t millis = (micros + core::kMillisecond - 1) / core::kMillisecond;
    if (LockTimeout > 0 && LockTimeout <= millis) return 0;
    return static_cast<int>(Max(millis, 1));
}

void set_lock_timeout(int millis) {
    char value[16];
    snprintf(value, sizeof(value), "%d", millis);
    set_locally("lock_timeout", value);
}

// Our own timeout is a result; any other error goes to the caller.
void swallow_timeout(const Subtransaction& outer) {
    ErrorData* error = abort_subtransaction(outer);
    if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE) ReThrowError(error);
    FreeErrorData(error);
}

// LockHasWaiters(), for a lock of any kind. The caller holds the lock of its partition.
bool has_waiters(const PROCLOCK& own) {
    const LOCK& lock = *own.tag.myLock;
    LockMethod method = GetLocksMethodTable(&lock);
    for (LOCKMODE mode = 1; mode <= method->numLockModes; mode++)
        if ((own.holdMask & LOCKBIT_ON(mode)) && (method->conflictTab[mode] & lock.waitMask))
            return true;
    return false;
}

bool is_of_class(const LOCKTAG& tag, std::uint16_t advisory_class) {
    return tag.locktag_type == LOCKTAG_ADVISORY && tag.locktag_field4 == advisory_class;
}

bool is_waited_for_in(int partition, std::uint16_t except_class) {
    auto* head = own_locks(partition);
    for (auto* link = head->next; link != nullptr && link != head; link = link->next) {
        auto* own = reinterpret_cast<PROCLOCK*>(reinterpret_cast<char*>(link) -
                                                offsetof(PROCLOCK, procLink));
        if (!is_of_class(own->tag.myLock->tag, except_class) && has_waiters(*own)) return true;
    }
    return false;
}

// VACUUM writes no row, and may take hours.
bool is_vacuum(const VirtualTransactionId& transaction) {
    const PGPROC* process = process_of(transaction);
    return process != nullptr && (process->statusFlags & PROC_IN_VACUUM) != 0;
}

void wait_for_virtual(void* transaction) {
    (void)VirtualXactLock(*static_cast<const VirtualTransactionId*>(transaction), true);
}

}  // namespace

// Walks our locks as LockReleaseAll() does. A fast-path lock moves to its partition as soon as
// another backend wants it (FastPathTransferRelationLocks, VirtualXactLock).
bool is_waited_for(std::uint16_t except_class) {
    bool found = false;
    for (int partition = 0; partition < NUM_LOCK_PARTITIONS && !found; partition++) {
        LWLock* lock = LockHashPartitionLockByIndex(partition);
        (void)LWLockAcquire(lock, LW_SHARED);
        found = is_waited_for_in(partition, except_class);
        LWLockRelease(lock);
    }
    return found;
}

void wait_for_transaction(TransactionId transaction) {
    XactLockTableWait(transaction, nullptr, nullptr, XLTW_None);
}

// As WaitForLockersMultiple() does for CREATE INDEX CONCURRENTLY, with a limit.
int wait_for_lockers(Oid table, LOCKMODE mode, std::int64_t micros) {
    LOCKTAG tag;
    SET_LOCKTAG_RELATION(tag, MyDatabaseId, table);
    std::int64_t deadline = monotonic_micros() + micros;
    int left = 0;
    VirtualTransactionId* each = GetLockConflicts(&tag, mode, nullptr);
    for (; VirtualTransactionIdIsValid(*each); each++) {
        if (is_vacuum(*each) || VirtualXactLock(*each, false)) continue;
        std::int64_t time = deadline - monotonic_micros();
        if (time <= 0 || !wait_at_most(time, wait_for_virtual, each)) left++;
    }
    return left;
}

// A lock wait can only end early with an error, so the wait runs in its own subtransaction, which
// is rolled back when lock_timeout ends it. After a success, its locks stay.
bool wait_at_most(std::int64_t micros, void (*wait)(void*), void* argument) {
    int millis = timeout_for(micros);
    if (millis == 0) {
        wait(argument);
        return true;
    }
    volatile bool timed_out = false;
    Subtransaction outer = begin_subtransaction();
    PG_TRY();
    {
        int guc_level = NewGUCNestLevel();
        set_lock_timeout(millis);
        wait(argument);
        AtEOXact_GUC(false, guc_level);
        commit_subtransaction(outer);
    }
    PG_CATCH();
    {
        swallow_timeout(outer);
        timed_out = true;
    }
    PG_END_TRY();
    return !timed_out;
}

}  // namespace idem::pg
