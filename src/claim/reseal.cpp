#include "claim/reseal.hpp"

#include "claim/locks.hpp"
#include "claim/sealing.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

// Under the lock of the key.
Resealed reseal_locked(const store::Identity& id) {
    store::Record record{};
    store::Look look = store::find(id, &record);
    if (TransactionIdIsValid(look.writer)) return Resealed::Busy;
    if (!look.found || !is_sealed_otherwise(record)) return Resealed::Nothing;
    if (!reseal(&record)) return Resealed::Unopened;
    return store::update(record, store::version_of(record)) ? Resealed::Done : Resealed::Busy;
}

}  // namespace

Resealed reseal_record(const store::Identity& id) {
    if (!try_lock(id)) return Resealed::Busy;
    Resealed result = reseal_locked(id);
    if (result != Resealed::Done || store::bypasses_executor(id)) unlock(id);
    return result;
}

int reseal_attempts(const store::SealedTable& table, store::Record* attempts, int count) {
    int opened = 0;
    for (int i = 0; i < count; i++) {
        CHECK_FOR_INTERRUPTS();
        if (!reseal(&attempts[i])) continue;
        attempts[opened++] = attempts[i];
    }
    store::replace_sealed(table, attempts, opened);
    return opened;
}

}  // namespace idem::claim
