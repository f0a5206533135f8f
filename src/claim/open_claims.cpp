// A claim follows the (sub)transactions as the server's own state does, by levels of nesting, as
// storage.c keeps its pendingDeletes (AtSubCommit_smgr, AtSubAbort_smgr): what happened at a level
// moves to the one above when a subtransaction commits, and is undone when it aborts. Three things
// can happen to a claim: it is made, its row is written, it ends; each notes its level, and the
// abort of a subtransaction takes back exactly those of its level or deeper.
//
// Invariants: at most one open claim for a key; an open claim has the lock of its key; a claim
// whose row carries its token (written_level > 0) is read from the row, any other from memory;
// nothing that runs in a callback runs code of users, and nothing is left to it that could have
// been refused at the grant.

#include "claim/open_claims.hpp"

#include "claim/locks.hpp"
#include "claim/waiters.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

// Claims by hash, and all of them, newest first. Everything is allocated in a child of
// TopTransactionContext and vanishes with it.
struct Bucket {
    std::uint64_t hash;
    OpenClaim* newest;
};

struct Claims {
    MemoryContext context;
    HTAB* buckets;
    OpenClaim* newest;
    OpenClaim* nested;  // those to which the end of a subtransaction matters; no other is walked
};
Claims claims;

// The context is noted last: if this fails half way, there are still no claims.
void prepare_memory() {
    if (claims.context != nullptr) return;
    MemoryContext context =
        AllocSetContextCreate(TopTransactionContext, "idempotency claims", ALLOCSET_DEFAULT_SIZES);
    HASHCTL control{};
    control.keysize = sizeof(std::uint64_t);
    control.entrysize = sizeof(Bucket);
    control.hcxt = context;
    claims.buckets =
        hash_create("idempotency claims", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
    claims.newest = nullptr;
    claims.nested = nullptr;
    claims.context = context;
}

void note_nested(OpenClaim* claim) {
    if (claim->nested) return;
    claim->nested = true;
    claim->next_nested = claims.nested;
    claims.nested = claim;
}

// The level at which something happens to the claim now.
int current_level(OpenClaim* claim) {
    int level = GetCurrentTransactionNestLevel();
    if (level > 1) note_nested(claim);
    return level;
}

Bucket* bucket_of(std::uint64_t hash, HASHACTION action) {
    bool found;
    auto* bucket = static_cast<Bucket*>(hash_search(claims.buckets, &hash, action, &found));
    if (bucket != nullptr && !found) bucket->newest = nullptr;
    return bucket;
}

template <typename Predicate>
OpenClaim* newest_if(const store::Identity& id, Predicate wanted) {
    if (claims.context == nullptr) return nullptr;
    Bucket* bucket = bucket_of(id.hash, HASH_FIND);
    for (OpenClaim* claim = bucket ? bucket->newest : nullptr; claim != nullptr;
         claim = claim->older_in_bucket)
        if (store::same_identity(claim->begun.id, id) && wanted(*claim)) return claim;
    return nullptr;
}

// What is left to matter after the change is noted again.
template <typename Change>
void change_nested(Change change) {
    if (claims.context == nullptr) return;
    OpenClaim* claim = claims.nested;
    claims.nested = nullptr;
    while (claim != nullptr) {
        OpenClaim* next = claim->next_nested;
        claim->nested = false;
        if (change(claim) && (claim->claimed_level > 1 || claim->written_level > 1 ||
                              claim->ended_level > 1 || claim->busy_level > 1))
            note_nested(claim);
        claim = next;
    }
}

// The claim is in the list, which the analyzer cannot know.
void unlink(OpenClaim** link, OpenClaim* OpenClaim::*older, OpenClaim* claim) {
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference)
    while (*link != claim) link = &((*link)->*older);
    *link = claim->*older;
}

// False if nothing of the claim is left.
bool undo_from(OpenClaim* claim, int level) {
    if (claim->claimed_level >= level) {
        drop_claim(claim);
        return false;
    }
    if (claim->written_level >= level) {
        claim->written_level = 0;
        claim->before_is_gone = false;
    }
    if (claim->ended_level >= level) claim->ended_level = 0;
    if (claim->busy_level >= level) claim->busy_level = 0;
    return true;
}

// What the row of this key is now; token 0 if there is no row.
store::Version row_version(const OpenClaim& claim) {
    if (claim.written_level > 0) return store::any_lease_of(claim.begun);
    return claim.has_before ? store::version_of(claim.before) : store::Version{};
}

// The row that a claim replaces may have been removed meanwhile, by a sweeper or by hand. Then it
// is inserted, but nothing is brought back that was in the row which has gone: a first attempt goes
// on with no other, later ones have inherited what their row said.
bool try_to_write(OpenClaim* claim, const store::Record& record) {
    store::Version row = row_version(*claim);
    bool afresh = row.token == 0 || claim->begun.attempt == 1;
    claim->busy_level = current_level(claim);
    bool written = row.token != 0 && store::update(record, row);
    if (!written && afresh) written = claim->before_is_gone = store::insert(record);
    claim->busy_level = 0;
    if (written && claim->written_level == 0) claim->written_level = current_level(claim);
    return written;
}

// What was done under the claim may stay. So others are to meet a version of the row that this
// transaction has made: they wait for its end, and whose snapshot is older is refused
// (row_versions.cpp). Then the row is what it was before the claim again, or is removed. What
// others have removed stays so: it may have been forgotten.
void leave_versions(OpenClaim* claim) {
    if (claim->written_level == 0 && !claim->has_before) {
        store::Record trace = claim->begun;
        trace.request = nullptr;
        write_claim(claim, trace);
    }
    store::Version row = row_version(*claim);
    bool comes_back = claim->has_before && !claim->before_is_gone;
    claim->busy_level = current_level(claim);
    bool restored =
        comes_back ? store::update(claim->before, row) : store::remove(claim->begun.id, row);
    claim->busy_level = 0;
    if (!restored) store::raise_claim_overtaken();
}

// The lease counts from the commit: it says how long a committed claim may be silent. Every lock
// that this needs was taken when the key was granted, so the table has changed only if this very
// transaction has changed it. Nothing but the server's own code runs here: for an error the scope
// is copied, and no look-up is made.
void write_open_claims() {
    if (claims.context == nullptr) return;
    for (OpenClaim* claim = claims.newest; claim != nullptr; claim = claim->older) {
        if (claim->ended_level > 0) continue;
        if (claim->transactional)
            ereport(
                ERROR,
                (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                 errmsg("a transactional claim is still open at the end of its transaction"),
                 errdetail("It was begun in scope \"%s\".", text_to_cstring(claim->begun.id.scope)),
                 errhint("End the claim with idem_complete, idem_fail, idem_unknown or "
                         "idem_release before COMMIT or PREPARE TRANSACTION.")));
        if (claim->leased) continue;
        if (!store::bypasses_executor(claim->begun.id))
            ereport(
                ERROR,
                (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                 errmsg("an open claim could not be written at commit"),
                 errdetail(
                     "This transaction has changed table idempotency.record since the claim."),
                 errhint("End claims before changing the table, or change it in a transaction of "
                         "its own.")));
        store::Record record = current_record(claim);
        TimestampTz until = pg::after(GetCurrentTimestamp(), record.lease);
        record.lease_until = Max(record.lease_until, until);
        write_claim(claim, record);
        claim->leased = true;
    }
}

// PRE_COMMIT comes after deferred triggers have fired and portals are closed; the server expects no
// code of users from here on, and gets none.
void at_transaction_event(XactEvent event, void*) {
    switch (event) {
        case XACT_EVENT_PRE_COMMIT:
        case XACT_EVENT_PRE_PREPARE:
            write_open_claims();
            break;
        case XACT_EVENT_COMMIT:
        case XACT_EVENT_PREPARE:
        case XACT_EVENT_ABORT:
            claims.context = nullptr;
            settle_waiters(event == XACT_EVENT_COMMIT);
            break;
        default:
            break;
    }
}

void at_subtransaction_event(SubXactEvent event, SubTransactionId, SubTransactionId, void*) {
    int level = GetCurrentTransactionNestLevel();
    if (event == SUBXACT_EVENT_COMMIT_SUB)
        change_nested([level](OpenClaim* claim) {
            claim->claimed_level = Min(claim->claimed_level, level - 1);
            claim->written_level = Min(claim->written_level, level - 1);
            claim->ended_level = Min(claim->ended_level, level - 1);
            claim->busy_level = Min(claim->busy_level, level - 1);
            return true;
        });
    else if (event == SUBXACT_EVENT_ABORT_SUB)
        change_nested([level](OpenClaim* claim) { return undo_from(claim, level); });
}

}  // namespace

OpenClaim* add_claim(const store::Record& record, const store::Record* before, bool transactional) {
    prepare_memory();
    MemoryContext previous = MemoryContextSwitchTo(claims.context);
    auto* claim = static_cast<OpenClaim*>(palloc0(sizeof(OpenClaim)));
    claim->begun = store::copy_record(record);
    claim->has_before = before != nullptr;
    if (before != nullptr) claim->before = store::copy_record(*before);
    claim->transactional = transactional;
    claim->claimed_level = current_level(claim);
    Bucket* bucket = bucket_of(claim->begun.id.hash, HASH_ENTER);
    claim->older_in_bucket = bucket->newest;
    bucket->newest = claim;
    claim->older = claims.newest;
    claims.newest = claim;
    MemoryContextSwitchTo(previous);
    return claim;
}

// What is dropped is nearly always the newest, so neither walk is long.
void drop_claim(OpenClaim* claim) {
    Bucket* bucket = bucket_of(claim->begun.id.hash, HASH_FIND);
    unlink(&claims.newest, &OpenClaim::older, claim);
    unlink(&bucket->newest, &OpenClaim::older_in_bucket, claim);
    if (claim->nested) unlink(&claims.nested, &OpenClaim::next_nested, claim);
    if (bucket->newest == nullptr)
        (void)hash_search(claims.buckets, &claim->begun.id.hash, HASH_REMOVE, nullptr);
    store::free_record(&claim->begun);
    if (claim->has_before) store::free_record(&claim->before);
    pfree(claim);
}

OpenClaim* open_claim(const store::Identity& id) {
    return newest_if(id, [](const OpenClaim& claim) { return claim.ended_level == 0; });
}

OpenClaim* ended_claim(const store::Identity& id) {
    return newest_if(id, [](const OpenClaim& claim) { return claim.ended_level > 0; });
}

int uncounted_claims(const store::Identity& id) {
    if (claims.context == nullptr) return 0;
    int uncounted = 0;
    for (const OpenClaim* claim = claims.newest; claim != nullptr; claim = claim->older) {
        const store::Identity& other = claim->begun.id;
        if (claim->ended_level > 0 || pg::bytes_of(other.scope) != pg::bytes_of(id.scope) ||
            pg::bytes_of(other.principal) != pg::bytes_of(id.principal))
            continue;
        bool may_become_leased = !claim->transactional && !claim->operated;
        bool in_table = claim->written_level > 0;
        if (may_become_leased != in_table) uncounted += may_become_leased ? 1 : -1;
    }
    return uncounted;
}

store::Record current_record(const OpenClaim* claim) {
    store::Record record = claim->begun;
    if (claim->written_level > 0 && !store::find(claim->begun.id, &record).found)
        store::raise_claim_overtaken();
    return record;
}

void write_claim(OpenClaim* claim, const store::Record& record) {
    if (!try_to_write(claim, record)) store::raise_claim_overtaken();
}

// The lease counts from here: the row is not touched again at commit.
bool write_early(OpenClaim* claim) {
    claim->leased = true;
    return try_to_write(claim, claim->begun);
}

void end_claim(OpenClaim* claim, ClaimEnd how) {
    claim->ended_level = current_level(claim);
    claim->how = how;
}

void unlock_written_claim(OpenClaim* claim) {
    if (store::bypasses_executor(claim->begun.id) &&
        claim->claimed_level == GetCurrentTransactionNestLevel())
        unlock(claim->begun.id);
}

// A transaction without an id has written nothing yet, be it in a savepoint.
void withdraw_claim(OpenClaim* claim) {
    bool has_versions =
        claim->written_level > 0 || TransactionIdIsValid(GetTopTransactionIdIfAny());
    if (has_versions) leave_versions(claim);
    end_claim(claim, ClaimEnd::Released);
    if (has_versions) {
        unlock_written_claim(claim);
    } else if (claim->claimed_level == claim->ended_level) {
        unlock(claim->begun.id);
        drop_claim(claim);
    }
}

void forget_ended_claim(OpenClaim* claim) {
    int level = GetCurrentTransactionNestLevel();
    if (claim->claimed_level == level && claim->ended_level == level) drop_claim(claim);
}

void raise_own_claim_open() {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("this transaction already has an open claim on this key"),
                    errhint("End the claim with idem_complete, idem_fail or idem_release.")));
    pg_unreachable();
}

void watch_transactions() {
    RegisterXactCallback(at_transaction_event, nullptr);
    RegisterSubXactCallback(at_subtransaction_event, nullptr);
}

void come_first_at_commit() {
    UnregisterXactCallback(at_transaction_event, nullptr);
    RegisterXactCallback(at_transaction_event, nullptr);
}

}  // namespace idem::claim
