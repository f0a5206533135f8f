#include "claim/locked_record.hpp"

#include "claim/key_lock.hpp"
#include "claim/records.hpp"
#include "pg/timed_wait.hpp"

namespace idem::claim {

bool lock_and_find(const store::Identity& id, store::Record* record) {
    lock(id);
    for (;;) {
        store::Sight sight = records().find(id, record);
        if (!TransactionIdIsValid(sight.writer)) return sight.found;
        pg::wait_for_transaction(sight.writer);
    }
}

}  // namespace idem::claim
