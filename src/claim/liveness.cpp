#include "claim/liveness.hpp"

#include "claim/lock_tag.hpp"

namespace idem::claim {

namespace {

// One session lock. Levels are transaction nesting levels of the running transaction; 0 means that
// it did not happen in this transaction.
struct Hold {
    Hold* next;
    LOCKTAG tag;
    std::int64_t token;
    int taken_level;
    int let_go_level;
};

Hold* holds;

// DISCARD ALL and pg_advisory_unlock_all() may have taken the lock from us.
void give_back(const Hold& hold) {
    if (pg::lock_held_by_me(&hold.tag, ExclusiveLock))
        (void)LockRelease(&hold.tag, ExclusiveLock, true);
}

// Takes each hold that is over out of the list, after `end` has had a last look at it.
template <typename Predicate, typename End>
void end_holds_if(Predicate over, End end) {
    for (Hold** link = &holds; *link != nullptr;) {
        Hold* hold = *link;
        if (!over(*hold)) {
            link = &hold->next;
            continue;
        }
        end(*hold);
        *link = hold->next;
        pfree(hold);
    }
}

template <typename Predicate>
void give_back_if(Predicate over) {
    end_holds_if(over, give_back);
}

template <typename Change>
void change_all(Change change) {
    for (Hold* hold = holds; hold != nullptr; hold = hold->next) change(hold);
}

bool is_for(const Hold& hold, const LOCKTAG& tag) {
    return memcmp(&hold.tag, &tag, sizeof(tag)) == 0;
}

// The lock was not ours, so DISCARD ALL has taken it from every hold that still counts on it.
void forget_lost(const LOCKTAG& tag) {
    end_holds_if([&](const Hold& hold) { return is_for(hold, tag); }, [](const Hold&) {});
}

void let_go(Hold* hold) {
    if (hold->let_go_level == 0) hold->let_go_level = GetCurrentTransactionNestLevel();
}

void let_go_others(const LOCKTAG& tag, std::int64_t token) {
    change_all([&](Hold* hold) {
        if (is_for(*hold, tag) && hold->token != token) let_go(hold);
    });
}

}  // namespace

// An earlier claim of this session on the same key is over, or this one would not have been
// granted.
bool hold(const store::Identity& id, std::int64_t token) {
    LOCKTAG tag = lock_tag(id, kLivenessClass);
    LockAcquireResult taken = LockAcquire(&tag, ExclusiveLock, true, true);
    if (taken == LOCKACQUIRE_NOT_AVAIL) return false;
    if (taken == LOCKACQUIRE_OK) forget_lost(tag);
    let_go_others(tag, token);
    auto* hold = static_cast<Hold*>(MemoryContextAlloc(TopMemoryContext, sizeof(Hold)));
    *hold = Hold{holds, tag, token, GetCurrentTransactionNestLevel(), 0};
    holds = hold;
    return true;
}

// Asked in share mode, so that two who ask at once don't take each other for the holder.
bool holder_is_gone(const store::Identity& id) {
    LOCKTAG tag = lock_tag(id, kLivenessClass);
    if (pg::lock_held_by_me(&tag, ExclusiveLock)) return false;
    if (LockAcquire(&tag, ShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL) return false;
    (void)LockRelease(&tag, ShareLock, false);
    return true;
}

void let_go_at_commit(const store::Identity& id, std::int64_t token) {
    LOCKTAG tag = lock_tag(id, kLivenessClass);
    change_all([&](Hold* hold) {
        if (is_for(*hold, tag) && hold->token == token) let_go(hold);
    });
}

void let_go_now(const store::Identity& id, std::int64_t token) {
    LOCKTAG tag = lock_tag(id, kLivenessClass);
    give_back_if([&](const Hold& hold) { return is_for(hold, tag) && hold.token == token; });
}

void liveness_commit() {
    give_back_if([](const Hold& hold) { return hold.let_go_level > 0; });
    change_all([](Hold* hold) { hold->taken_level = 0; });
}

// What becomes of a prepared transaction is decided later and perhaps elsewhere. Holding on too
// long costs nothing but the wait for a lease; giving back too early would cost the exclusion.
void liveness_prepare() {
    change_all([](Hold* hold) { hold->taken_level = hold->let_go_level = 0; });
}

void liveness_abort() {
    give_back_if([](const Hold& hold) { return hold.taken_level > 0; });
    change_all([](Hold* hold) { hold->let_go_level = 0; });
}

void liveness_subcommit(int level) {
    change_all([level](Hold* hold) {
        hold->taken_level = Min(hold->taken_level, level - 1);
        hold->let_go_level = Min(hold->let_go_level, level - 1);
    });
}

void liveness_subabort(int level) {
    give_back_if([level](const Hold& hold) { return hold.taken_level >= level; });
    change_all([level](Hold* hold) {
        if (hold->let_go_level >= level) hold->let_go_level = 0;
    });
}

}  // namespace idem::claim
