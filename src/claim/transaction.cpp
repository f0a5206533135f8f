#include "claim/transaction.hpp"

#include "claim/liveness.hpp"
#include "claim/open_claims.hpp"

namespace idem::claim {

namespace {

void at_transaction_event(XactEvent event, void*) {
    switch (event) {
        case XACT_EVENT_PRE_COMMIT:
        case XACT_EVENT_PRE_PREPARE:
            // The server has fired deferred constraints already; those on our table come only now.
            while (write_open_claims()) AfterTriggerFireDeferred();
            break;
        case XACT_EVENT_COMMIT:
            forget_claims();
            liveness_commit();
            break;
        case XACT_EVENT_PREPARE:
            forget_claims();
            liveness_prepare();
            break;
        case XACT_EVENT_ABORT:
            forget_claims();
            liveness_abort();
            break;
        default:
            break;
    }
}

void at_subtransaction_event(SubXactEvent event, SubTransactionId, SubTransactionId, void*) {
    int level = GetCurrentTransactionNestLevel();
    if (event == SUBXACT_EVENT_COMMIT_SUB) {
        claims_subcommit(level);
        liveness_subcommit(level);
    } else if (event == SUBXACT_EVENT_ABORT_SUB) {
        claims_subabort(level);
        liveness_subabort(level);
    }
}

}  // namespace

void watch_transactions() {
    RegisterXactCallback(at_transaction_event, nullptr);
    RegisterSubXactCallback(at_subtransaction_event, nullptr);
}

}  // namespace idem::claim
