#include "claim/transaction.hpp"

#include "claim/open_claims.hpp"

namespace idem::claim {

namespace {

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
            forget_claims();
            break;
        default:
            break;
    }
}

void at_subtransaction_event(SubXactEvent event, SubTransactionId, SubTransactionId, void*) {
    int level = GetCurrentTransactionNestLevel();
    if (event == SUBXACT_EVENT_COMMIT_SUB)
        claims_subcommit(level);
    else if (event == SUBXACT_EVENT_ABORT_SUB)
        claims_subabort(level);
}

}  // namespace

void watch_transactions() {
    RegisterXactCallback(at_transaction_event, nullptr);
    RegisterSubXactCallback(at_subtransaction_event, nullptr);
}

void come_first_at_commit() {
    UnregisterXactCallback(at_transaction_event, nullptr);
    RegisterXactCallback(at_transaction_event, nullptr);
}

}  // namespace idem::claim
