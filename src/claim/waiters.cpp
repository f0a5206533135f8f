// One slot for each backend has the hash of the key that it waits for. The transaction that ends a
// claim walks all slots and sets the latches of those that wait for it, as WalSndWakeup() walks the
// WAL senders (walsender.c).
//
// No end is missed. The waiter writes its slot, then looks at the record; the other session's
// commit is visible before it reads the slots. So either the look finds the end, or the walk finds
// the slot. Two keys of one hash, a slot that a terminated backend has left, and a claim whose end
// was undone by a savepoint wake a session without need: it looks, and sleeps again.

#include "claim/waiters.hpp"

#include "pg/shared_memory.hpp"

namespace idem::claim {

namespace {

using Slot = pg_atomic_uint64;  // 0: its backend waits for no key

// Only regular backends wait, and their processes come first in the array of all.
pg::SharedMemory shared_slots = {
    "idempotency waiters", [] { return sizeof(Slot) * static_cast<std::size_t>(MaxBackends); },
    [](void* memory) {
        auto* slots = static_cast<Slot*>(memory);
        for (int number = 0; number < MaxBackends; number++) pg_atomic_init_u64(&slots[number], 0);
    },
    nullptr, nullptr};

// nullptr: there is no shared memory.
Slot* all_slots() {
    return static_cast<Slot*>(pg::attach(&shared_slots));
}

bool is_noted;  // in our slot

// The keys whose claims this transaction has ended. One that ends more of them wakes every waiter.
constexpr int kMaxEnded = 32;
std::uint64_t ended[kMaxEnded];
int ended_count;

// Never 0. Keys of other databases have other tags.
std::uint64_t tag_of(const store::Identity& id) {
    std::uint64_t tag = hash_combine64(id.hash, MyDatabaseId);
    return tag == 0 ? 1 : tag;
}

void wake_waiters() {
    Slot* slots = all_slots();
    pg_memory_barrier();
    for (int number = 0; number < MaxBackends; number++) {
        std::uint64_t tag = pg_atomic_read_u64(&slots[number]);
        if (tag == 0) continue;
        bool has_ended = ended_count > kMaxEnded;
        for (int i = 0; i < ended_count && !has_ended; i++) has_ended = ended[i] == tag;
        if (has_ended) SetLatch(&GetPGProcByNumber(number)->procLatch);
    }
}

}  // namespace

void request_waiter_memory() {
    pg::request_shared_memory(&shared_slots);
}

bool note_waiting(const store::Identity& id) {
    Slot* slots = all_slots();
    int number = pg::own_process_number();
    if (slots == nullptr || number >= MaxBackends) return false;
    pg_atomic_write_u64(&slots[number], tag_of(id));
    pg_memory_barrier();
    is_noted = true;
    return true;
}

void note_waiting_ended() {
    if (!is_noted) return;
    pg_atomic_write_u64(&all_slots()[pg::own_process_number()], 0);
    is_noted = false;
}

// Attaches here, where an error may still be raised.
void wake_waiters_at_commit(const store::Identity& id) {
    if (all_slots() == nullptr) return;
    if (ended_count < kMaxEnded) ended[ended_count] = tag_of(id);
    if (ended_count <= kMaxEnded) ended_count++;
}

void settle_waiters(bool committed) {
    if (committed && ended_count > 0) wake_waiters();
    ended_count = 0;
    note_waiting_ended();
}

}  // namespace idem::claim
