#include "claim/reseal.hpp"

#include "claim/locks.hpp"
#include "claim/sealing.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

// Under the lock of the key.
Resealed reseal_locked(const store::Identity& id) {
    constexpr Resealed kNothing{};
    store::Record record{};
    store::Look look = store::find(id, &record);
    if (TransactionIdIsValid(look.writer) || !look.found || !is_sealed_otherwise(record))
        return kNothing;
    if (!reseal(&record)) return {0, 1};
    return store::update(record, store::version_of(record)) ? Resealed{1, 0} : kNothing;
}

Resealed reseal_record(const store::Identity& id) {
    if (!try_lock(id)) return {};
    Resealed result = reseal_locked(id);
    if (result.done == 0 || store::bypasses_executor(id)) unlock(id);
    return result;
}

Resealed reseal_records(const store::Record* records, int count) {
    Resealed sum{};
    for (int i = 0; i < count; i++) {
        CHECK_FOR_INTERRUPTS();
        Resealed one = reseal_record(records[i].id);
        sum.done += one.done;
        sum.unopened += one.unopened;
    }
    return sum;
}

// The transaction has locked them.
Resealed reseal_attempts(const store::SealedTable& table, store::Record* attempts, int count) {
    int opened = 0;
    for (int i = 0; i < count; i++) {
        CHECK_FOR_INTERRUPTS();
        if (reseal(&attempts[i])) attempts[opened++] = attempts[i];
    }
    store::replace_sealed(table, attempts, opened);
    return {opened, count - opened};
}

}  // namespace

Resealed reseal_rows(const store::SealedTable& table, store::Record* rows, int count) {
    return store::has_attempts(table) ? reseal_attempts(table, rows, count)
                                      : reseal_records(rows, count);
}

}  // namespace idem::claim
