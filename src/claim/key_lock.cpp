#include "claim/key_lock.hpp"

#include "pg/wait.hpp"

namespace idem::claim {

namespace {

// Users' advisory locks have 1 and 2 in the fourth field.
constexpr std::uint16_t kClaimClass = 18756;

LOCKTAG lock_tag(const store::Identity& id) {
    std::uint64_t hash = store::identity_hash(id);
    LOCKTAG tag;
    SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, static_cast<uint32>(hash >> 32),
                         static_cast<uint32>(hash), kClaimClass);
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

LockAcquireResult acquire(const store::Identity& id, bool dont_wait) {
    LOCKTAG tag = lock_tag(id);
    return as_transaction([&] { return LockAcquire(&tag, ExclusiveLock, false, dont_wait); });
}

void wait_for_lock(void* id) {
    lock(*static_cast<const store::Identity*>(id));
}

}  // namespace

bool try_lock(const store::Identity& id) {
    return acquire(id, true) != LOCKACQUIRE_NOT_AVAIL;
}

void lock(const store::Identity& id) {
    (void)acquire(id, false);
}

bool lock_within(const store::Identity& id, std::int64_t micros) {
    store::Identity wanted = id;
    return pg::wait_at_most(micros, wait_for_lock, &wanted);
}

void unlock(const store::Identity& id) {
    LOCKTAG tag = lock_tag(id);
    (void)as_transaction([&] { return LockRelease(&tag, ExclusiveLock, false); });
}

}  // namespace idem::claim
