#include "claim/locked_record.hpp"

#include "claim/key_lock.hpp"
#include "claim/records.hpp"
#include "pg/timed_wait.hpp"

namespace idem::claim {

// The writer may have given the lock back and need it again, so nobody waits for it with the lock.
bool lock_and_find(const store::Identity& id, store::Record* record) {
    for (;;) {
        lock(id);
        store::Look look = records().find(id, record);
        if (!TransactionIdIsValid(look.writer)) return look.found;
        unlock(id);
        pg::wait_for_transaction(look.writer);
    }
}

}  // namespace idem::claim
