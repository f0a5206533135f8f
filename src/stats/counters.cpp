// Every call counts, so counting takes no lock: a search finds a scope's slot without one, and the
// counters are atomic. Only the first use of a scope in the life of a server takes the lock, to
// take a slot.
//
// A slot is published as RegisterDynamicBackgroundWorker() publishes one to the postmaster. The
// writer fills all of it, then passes a write barrier, then writes the word that makes it valid,
// here `hash`. Readers read that word, pass a read barrier, and only then read the rest. Slots are
// never freed and never move, so a search needs no lock and ends at the first free slot: a later
// slot was taken when that one was already in use.
//
// Races. Two backends that meet a new scope together both find it absent. The second to get the
// lock searches again under it and finds the slot of the first. A reset writes zeros while others
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
constexpr int kSlots = 512;

// `hash` is 0 while the slot is free. A reader that finds another value sees the whole slot. All
// but the counters then stays the same until the server restarts.
struct Slot {
    pg_atomic_uint64 hash;
    Oid database;
    std::uint16_t length;
    char scope[core::kMaxNameBytes];
    pg_atomic_uint64 counts[kCounterCount];
    pg_atomic_uint64 since;
};

struct Shared {
    LWLock lock;  // guards taking a slot, nothing else
    Slot overflow;
    Slot slots[kSlots];
};

Shared* shared;

void clear(Slot* slot) {
    for (pg_atomic_uint64& count : slot->counts) pg_atomic_write_u64(&count, 0);
    pg_atomic_write_u64(&slot->since, static_cast<std::uint64_t>(GetCurrentTimestamp()));
}

void init_slot(Slot* slot) {
    memset(static_cast<void*>(slot), 0, sizeof(Slot));
    pg_atomic_init_u64(&slot->hash, 0);
    pg_atomic_init_u64(&slot->since, 0);
    for (pg_atomic_uint64& count : slot->counts) pg_atomic_init_u64(&count, 0);
    clear(slot);
}

void init_shared(void* memory) {
    auto* fresh = static_cast<Shared*>(memory);
    LWLockInitialize(&fresh->lock, pg::new_lock_tranche(kName));
    init_slot(&fresh->overflow);
    for (Slot& slot : fresh->slots) init_slot(&slot);
}

pg::SharedMemory memory = {kName, sizeof(Shared), init_shared, nullptr, nullptr};

// Never 0, which marks a free slot.
std::uint64_t slot_hash(std::string_view scope) {
    std::uint64_t hash =
        DatumGetUInt64(hash_any_extended(reinterpret_cast<const unsigned char*>(scope.data()),
                                         static_cast<int>(scope.size()), MyDatabaseId));
    return hash == 0 ? 1 : hash;
}

bool is_of(const Slot& slot, std::string_view scope) {
    return slot.database == MyDatabaseId && std::string_view(slot.scope, slot.length) == scope;
}

// Open addressing from the place of the hash to the first free slot. nullptr if the scope has no
// slot; `*free` is then the free slot, if there is one.
Slot* search(std::uint64_t hash, std::string_view scope, Slot** free) {
    *free = nullptr;
    for (int i = 0; i < kSlots; i++) {
        Slot* slot = &shared->slots[(hash + static_cast<std::uint64_t>(i)) % kSlots];
        std::uint64_t found = pg_atomic_read_u64(&slot->hash);
        if (found == 0) {
            *free = slot;
            return nullptr;
        }
        pg_read_barrier();  // of the rest of the slot, which was written before
        if (found == hash && is_of(*slot, scope)) return slot;
    }
    return nullptr;
}

Slot* take_slot(std::uint64_t hash, std::string_view scope) {
    Slot* free;
    LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
    // Another backend may have taken a slot for the same scope since our search.
    Slot* slot = search(hash, scope, &free);
    if (slot == nullptr && free != nullptr && scope.size() <= core::kMaxNameBytes) {
        slot = free;
        slot->database = MyDatabaseId;
        slot->length = static_cast<std::uint16_t>(scope.size());
        memcpy(slot->scope, scope.data(), scope.size());
        clear(slot);
        pg_write_barrier();
        pg_atomic_write_u64(&slot->hash, hash);
    }
    LWLockRelease(&shared->lock);
    return slot;
}

Slot* slot_for(std::string_view scope) {
    std::uint64_t hash = slot_hash(scope);
    Slot* free;
    Slot* slot = search(hash, scope, &free);
    if (slot == nullptr && free != nullptr) slot = take_slot(hash, scope);
    return slot != nullptr ? slot : &shared->overflow;
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

// Whether a slot is taken and of this database.
bool is_ours(const Slot& slot) {
    if (pg_atomic_read_u64(const_cast<pg_atomic_uint64*>(&slot.hash)) == 0) return false;
    pg_read_barrier();
    return slot.database == MyDatabaseId;
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
    if (available())
        pg_atomic_fetch_add_u64(&slot_for(scope)->counts[static_cast<int>(counter)],
                                static_cast<std::int64_t>(amount));
}

void count_swept(std::string_view scope, std::int64_t rows) {
    count(scope, Counter::Swept, static_cast<std::uint64_t>(rows));
}

// Attaching to a named segment could fail in the middle of another error, so a session does not
// count the error if this is its first call. A preloaded library has nothing to attach to.
void count_store_error(std::string_view scope) {
    if (shared != nullptr || memory.memory != nullptr) count(scope, Counter::StoreErrors);
}

int read_all(ScopeCounts** rows) {
    *rows = static_cast<ScopeCounts*>(palloc(sizeof(ScopeCounts) * (kSlots + 1)));
    int count = 0;
    for (const Slot& slot : shared->slots)
        if (is_ours(slot))
            (*rows)[count++] = copy_of(slot, pg::make_text({slot.scope, slot.length}));
    ScopeCounts overflow = copy_of(shared->overflow, nullptr);
    if (was_used(overflow)) (*rows)[count++] = overflow;
    return count;
}

void reset() {
    for (Slot& slot : shared->slots)
        if (is_ours(slot)) clear(&slot);
    clear(&shared->overflow);
}

}  // namespace idem::stats
