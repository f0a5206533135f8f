#include "claim/reseal.hpp"

#include "claim/locks.hpp"
#include "claim/sealing.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

// A record that another transaction works on is passed over.
Resealed reseal_records(const store::Record* records, int count) {
    Resealed sum{};
    for (int i = 0; i < count; i++) {
        CHECK_FOR_INTERRUPTS();
        const store::Identity& id = records[i].id;
        if (!try_lock(id)) continue;
        store::Record record{};
        store::Look look = store::find(id, &record);
        bool wanted =
            !TransactionIdIsValid(look.writer) && look.found && is_sealed_otherwise(record);
        bool sealed = wanted && reseal(&record);
        if (wanted && !sealed) sum.unopened++;
        bool done = sealed && store::update(record, store::version_of(record));
        if (done) sum.done++;
        if (!done || store::bypasses_executor(id)) unlock(id);
    }
    return sum;
}

}  // namespace

Resealed reseal_rows(const store::SealedTable& table, store::Record* rows, int count) {
    if (!store::has_attempts(table)) return reseal_records(rows, count);
    // The transaction has locked the attempts.
    int opened = 0;
    for (int i = 0; i < count; i++) {
        CHECK_FOR_INTERRUPTS();
        if (reseal(&rows[i])) rows[opened++] = rows[i];
    }
    store::replace_sealed(table, rows, opened);
    return {opened, count - opened};
}

}  // namespace idem::claim
