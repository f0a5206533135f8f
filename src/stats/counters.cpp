// Every call counts, so counting takes no lock: a search finds a scope's slot without one, and the
// counters are atomic. A scope without a slot takes the lock, to get one.
//
// The slots form sets, as in a processor's cache. A scope's hash names its set, and its slot may be
// any of the set: a free one, or else the one unused for longest, whose scope is evicted. The
// counts of an evicted scope go to the overflow slot of its database, so totals never fall.
//
// A slot is published as RegisterDynamicBackgroundWorker() publishes one to the postmaster. The
// writer fills all of it, then passes a write barrier, then writes the word that makes it valid,
// here the slot's tag. Readers read that word, pass a read barrier, and only then read the rest.
//
// Races. Two backends that meet a new scope together both find it absent. The second to get the
// lock searches again under it and finds the slot of the first. A backend that has found a slot
// which is evicted before it counts, counts for the next scope. A reset writes zeros while others
// count: a concurrent addition is lost or survives, as if the reset came just after or just before
// it. The numbers of a row are read one by one, so they may differ by concurrent counts.
//
// The memory is requested and attached as in pg_stat_statements (pgss_shmem_request,
// pgss_shmem_startup); see pg/shared_memory.cpp.

#include "stats/counters.hpp"

#include "core/key.hpp"

#include "pg/datum.hpp"
#include "pg/shared_memory.hpp"

namespace idem::stats {

namespace {

// The name of the memory, and of the wait event of its lock.
constexpr const char* kName = "idempotency";
constexpr int kDatabases = 64;
constexpr int kSets = 16;
constexpr int kWays = 64;

// Another scope gets the slot only under the lock.
struct Slot {
    Oid database;
    std::uint16_t length;
    char scope[core::kMaxNameBytes];
    pg_atomic_uint64 counts[kCounterCount];
    pg_atomic_uint64 since;
    pg_atomic_uint64 used;  // the start of the last statement that counted
};

// The tags of a set lie together, so a search reads few cache lines.
struct Set {
    pg_atomic_uint64 tags[kWays];  // the hash of the slot's scope; 0: the slot is free
    Slot slots[kWays];
};

struct Shared {
    LWLock lock;                // guards taking a slot, nothing else
    Slot overflow[kDatabases];  // the last one is for all databases that have none
    Set sets[kSets];
};

Shared* shared;

void clear(Slot* slot) {
    for (pg_atomic_uint64& count : slot->counts) pg_atomic_write_u64(&count, 0);
    pg_atomic_write_u64(&slot->since, static_cast<std::uint64_t>(GetCurrentTimestamp()));
}

void init_slot(Slot* slot) {
    memset(static_cast<void*>(slot), 0, sizeof(Slot));
    pg_atomic_init_u64(&slot->since, 0);
    pg_atomic_init_u64(&slot->used, 0);
    for (pg_atomic_uint64& count : slot->counts) pg_atomic_init_u64(&count, 0);
    clear(slot);
}

void init_shared(void* memory) {
    auto* fresh = static_cast<Shared*>(memory);
    LWLockInitialize(&fresh->lock, pg::new_lock_tranche(kName));
    for (Slot& slot : fresh->overflow) init_slot(&slot);
    for (Set& set : fresh->sets) {
        for (pg_atomic_uint64& tag : set.tags) pg_atomic_init_u64(&tag, 0);
        for (Slot& slot : set.slots) init_slot(&slot);
    }
}

pg::SharedMemory memory = {kName, [] { return sizeof(Shared); }, init_shared, nullptr, nullptr};

// Never 0, which marks a free slot.
std::uint64_t tag_of(std::string_view scope) {
    std::uint64_t hash =
        DatumGetUInt64(hash_any_extended(reinterpret_cast<const unsigned char*>(scope.data()),
                                         static_cast<int>(scope.size()), MyDatabaseId));
    return hash == 0 ? 1 : hash;
}

bool is_of(const Slot& slot, std::string_view scope) {
    return slot.database == MyDatabaseId && std::string_view(slot.scope, slot.length) == scope;
}

// nullptr if the scope has no slot.
Slot* search(std::uint64_t tag, std::string_view scope) {
    Set& set = shared->sets[tag % kSets];
    for (int way = 0; way < kWays; way++) {
        if (pg_atomic_read_u64(&set.tags[way]) != tag) continue;
        pg_read_barrier();  // of the rest of the slot, which was written before
        if (is_of(set.slots[way], scope)) return &set.slots[way];
    }
    return nullptr;
}

// A free slot, or the one unused for longest.
int way_to_take(Set* set) {
    int oldest = 0;
    for (int way = 0; way < kWays; way++) {
        if (pg_atomic_read_u64(&set->tags[way]) == 0) return way;
        if (pg_atomic_read_u64(&set->slots[way].used) <
            pg_atomic_read_u64(&set->slots[oldest].used))
            oldest = way;
    }
    return oldest;
}

void add(Slot* slot, Counter counter, std::uint64_t amount) {
    pg_atomic_fetch_add_u64(&slot->counts[static_cast<int>(counter)],
                            static_cast<std::int64_t>(amount));
}

// Where the counts of a database go that have no scope's slot. Call it under the lock, which gives
// a database its slot.
Slot* overflow_of(Oid database) {
    Slot* slot = shared->overflow;
    Slot* last = &shared->overflow[kDatabases - 1];
    while (slot != last && OidIsValid(slot->database) && slot->database != database) slot++;
    if (slot != last) slot->database = database;
    return slot;
}

void evict(Slot* slot) {
    Slot* rest = overflow_of(slot->database);
    for (const core::CounterEntry& entry : core::kCounters) {
        auto& count = slot->counts[static_cast<int>(entry.counter)];
        add(rest, entry.counter, pg_atomic_exchange_u64(&count, 0));
    }
    add(rest, Counter::Evicted, 1);
}

void give(Slot* slot, std::string_view scope) {
    slot->database = MyDatabaseId;
    slot->length = static_cast<std::uint16_t>(scope.size());
    memcpy(slot->scope, scope.data(), scope.size());
    clear(slot);
}

// Whether a scope without a slot may evict another one.
enum class Use { Call, Removal };

// Call it under the lock.
Slot* new_slot(std::uint64_t tag, std::string_view scope, Use use) {
    Set& set = shared->sets[tag % kSets];
    int way = way_to_take(&set);
    bool is_taken = pg_atomic_read_u64(&set.tags[way]) != 0;
    if (scope.size() > core::kMaxNameBytes || (is_taken && use == Use::Removal))
        return overflow_of(MyDatabaseId);
    Slot* slot = &set.slots[way];
    pg_atomic_write_u64(&set.tags[way], 0);
    if (is_taken) evict(slot);
    give(slot, scope);
    pg_write_barrier();
    pg_atomic_write_u64(&set.tags[way], tag);
    return slot;
}

Slot* slot_for(std::string_view scope, Use use) {
    std::uint64_t tag = tag_of(scope);
    Slot* slot = search(tag, scope);
    if (slot == nullptr) {
        LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
        // Another backend may have taken a slot for the same scope since our search.
        slot = search(tag, scope);
        if (slot == nullptr) slot = new_slot(tag, scope, use);
        LWLockRelease(&shared->lock);
    }
    auto now = static_cast<std::uint64_t>(GetCurrentStatementStartTimestamp());
    // A worker may have no statement.
    if (use == Use::Call && now > pg_atomic_read_u64(&slot->used))
        pg_atomic_write_u64(&slot->used, now);
    return slot;
}

ScopeCounts copy_of(const Slot& slot, text* scope) {
    ScopeCounts row;
    row.scope = scope;
    for (int i = 0; i < kCounterCount; i++)
        row.counts[i] = pg_atomic_read_u64(const_cast<pg_atomic_uint64*>(&slot.counts[i]));
    row.since =
        static_cast<TimestampTz>(pg_atomic_read_u64(const_cast<pg_atomic_uint64*>(&slot.since)));
    return row;
}

// Calls use(slot) with each slot of this database.
template <typename Use>
void each_of_ours(Use use) {
    for (Set& set : shared->sets)
        for (int way = 0; way < kWays; way++) {
            if (pg_atomic_read_u64(&set.tags[way]) == 0) continue;
            pg_read_barrier();
            if (set.slots[way].database == MyDatabaseId) use(&set.slots[way]);
        }
}

bool was_used(const ScopeCounts& row) {
    for (std::uint64_t count : row.counts)
        if (count > 0) return true;
    return false;
}

}  // namespace

void request_shared_memory() {
    pg::request_shared_memory(&memory);
}

bool available() {
    if (shared != nullptr) return true;
    shared = static_cast<Shared*>(pg::attach(&memory));
    if (shared == nullptr) return false;
    pg::know_lock_tranche(shared->lock.tranche, kName);
    return true;
}

void count(std::string_view scope, Counter counter, std::uint64_t amount) {
    if (available()) add(slot_for(scope, Use::Call), counter, amount);
}

// Removing old records is no use of their scope: it evicts none that is in use.
void count_swept(std::string_view scope, std::int64_t rows) {
    if (available())
        add(slot_for(scope, Use::Removal), Counter::Swept, static_cast<std::uint64_t>(rows));
}

// Attaching to a named segment could fail in the middle of another error, so a session does not
// count the error if this is its first call. A preloaded library has nothing to attach to.
void count_store_error(std::string_view scope) {
    if (shared != nullptr || memory.memory != nullptr) count(scope, Counter::StoreErrors);
}

// Under the lock, so that no slot changes its scope meanwhile.
int read_all(ScopeCounts** rows) {
    *rows = static_cast<ScopeCounts*>(palloc(sizeof(ScopeCounts) * (kSets * kWays + 2)));
    int count = 0;
    LWLockAcquire(&shared->lock, LW_SHARED);
    each_of_ours([&](const Slot* slot) {
        (*rows)[count++] = copy_of(*slot, pg::make_text({slot->scope, slot->length}));
    });
    for (const Slot& slot : shared->overflow) {
        ScopeCounts overflow = copy_of(slot, nullptr);
        bool is_shared = &slot == &shared->overflow[kDatabases - 1];
        if ((is_shared || slot.database == MyDatabaseId) && was_used(overflow))
            (*rows)[count++] = overflow;
    }
    LWLockRelease(&shared->lock);
    return count;
}

void reset() {
    LWLockAcquire(&shared->lock, LW_SHARED);
    each_of_ours(clear);
    for (Slot& slot : shared->overflow)
        if (slot.database == MyDatabaseId) clear(&slot);
    LWLockRelease(&shared->lock);
}

}  // namespace idem::stats
