#include "claim/locked_record.hpp"

#include "claim/key_lock.hpp"
#include "claim/records.hpp"
#include "pg/wait.hpp"

namespace idem::claim {

// The writer may have given the lock back and need it again, so nobody waits for it with the lock.
bool lock_and_find(const store::Identity& id, store::Record* record) {
    for (;;) {
        lock(id);
        store::Sight sight = records().find(id, record);
        if (!TransactionIdIsValid(sight.writer)) return sight.found;
        unlock(id);
        pg::wait_for_transaction(sight.writer);
    }
}

}  // namespace idem::claim
