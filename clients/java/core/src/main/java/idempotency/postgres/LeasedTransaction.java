package idempotency.postgres;

import idempotency.postgres.Result.Judged;
import java.sql.Connection;

/**
 * Work in a transaction that also completes its claim: both commit, or neither does. The claim has committed before.
 * After a failure it is failed retryably, since nothing has happened.
 */
final class LeasedTransaction {
    interface Work {
        Judged run(Connection connection) throws Exception;
    }

    private final Hold hold;
    private final Work work;

    LeasedTransaction(Hold hold, Work work) {
        this.hold = hold;
        this.work = work;
    }

    Result run() {
        Exception failure = null;
        try {
            Judged judged = runAgainAfterConflicts();
            if (!judged.isRecorded()) {
                hold.fail(null, judged.reason(), false);
            }
        } catch (Exception e) {
            failure = e;
            fail(e);
        } catch (Throwable e) {
            fail(e);
            throw e;
        } finally {
            hold.heartbeat.end();
        }
        return new Result(hold.claimed, null, true, hold.heartbeat.isLost(), failure);
    }

    private Judged runAgainAfterConflicts() throws Exception {
        for (int attempt = 1;; attempt++) {
            try {
                return hold.store.inTransaction(this::once);
            } catch (Exception e) {
                if (!DatabaseFailure.isConflict(e) || attempt >= hold.request.attempts || hold.heartbeat.isToStop()) {
                    throw e;
                }
                hold.heartbeat.resume();
                Store.pause(attempt);
            }
        }
    }

    private Store.Ended<Judged> once(Database.Transaction transaction) throws Exception {
        Judged judged = lent(transaction.connection());
        hold.heartbeat.stopBeating();
        if (hold.heartbeat.isLost()) {
            throw new LeaseLost();
        }
        if (!judged.isRecorded()) {
            return new Store.Ended<>(judged, false);
        }
        if (transaction.isRollbackOnly()) {
            throw new IllegalStateException("the transaction was marked for rollback, but the work has returned");
        }
        if (!hold.store.within(transaction.connection(), hold.store.timeoutMillis,
                each -> Statements.complete(each, hold.request, judged.answer(), hold.claimed.token()))) {
            throw new IllegalStateException("the claim was completed by other means than this transaction");
        }
        return new Store.Ended<>(judged, true);
    }

    /** Late work has failed, whatever it returns or throws. */
    private Judged lent(Connection connection) throws Exception {
        Lent lent = new Lent(connection);
        Limit limit = new Limit(hold.request.handlerTimeout(Contract.LEASED_HANDLER_TIMEOUT_MS), lent::close, () -> Store.cut(connection));
        Judged judged;
        try (lent; Interruption working = hold.heartbeat.working(); limit) {
            judged = work.run(lent.connection());
        } catch (Exception e) {
            throw limit.failure() == null ? e : limit.failure();
        }
        if (limit.failure() != null) {
            throw limit.failure();
        }
        return judged;
    }

    /** The server refuses it if the transaction has committed nevertheless, and its answer was lost. */
    private void fail(Throwable failure) {
        hold.heartbeat.stopBeating();
        hold.fail(failure, null, false);
    }
}
