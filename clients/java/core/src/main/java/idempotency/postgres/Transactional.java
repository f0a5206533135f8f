package idempotency.postgres;

import idempotency.postgres.Result.Judged;
import java.sql.Connection;

/**
 * Work in the transaction of its claim, which stores its answer. If the answer is not to be kept, all of it
 * rolls back. After a conflict or a lost connection all of it is repeated. After a COMMIT without an answer,
 * the repetition finds the record if the work was done. Without a record the result is not known, and the work
 * is not repeated.
 */
final class Transactional {
    private final Store store;
    private final Request request;
    private final Idempotency.TransactionHandler work;
    private final Runnable onGivenUp;
    private Identity identity;
    private Claimed claimed;
    private Answer answer;
    private boolean ran;
    private Judged refusal; // to be recorded without the work

    Transactional(Store store, Request request, Idempotency.TransactionHandler work, Runnable onGivenUp) {
        this.store = store;
        this.request = request;
        this.work = work;
        this.onGivenUp = onGivenUp;
    }

    Result run() {
        Exception before = null;
        for (int attempt = 1;; attempt++) {
            claimed = null;
            answer = null;
            Exception failure = null;
            try {
                transact();
            } catch (Exception e) {
                failure = e;
            }
            // The transaction that lost its connection may not have ended yet, and hold the key.
            boolean ownPredecessor = failure == null && before instanceof DatabaseFailure
                    && !DatabaseFailure.isConflict(before) && claimed.isInProgress();
            boolean unknown = request.isUnprotected() && DatabaseFailure.isInDoubt(failure);
            boolean again = ownPredecessor || failure != null && DatabaseFailure.isRetryable(failure) && !unknown;
            if (!again || attempt >= request.attempts || !paused(attempt)) {
                return new Result(claimed, answer, ran, false, failure);
            }
            before = failure == null ? before : failure;
        }
    }

    private static boolean paused(int attempt) {
        try {
            Store.pause(attempt);
            return true;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    /** JSON that jsonb refuses has aborted its transaction. */
    private void transact() throws Exception {
        boolean refused = refusal != null;
        attempt();
        if (refusal != null && !refused) {
            attempt(); // under a new claim. Another request may have had the key in between
        }
    }

    private void attempt() throws Exception {
        try {
            store.inTransaction(this::once);
        } catch (DatabaseFailure failure) {
            if (claimed != null || identity == null || !identity.isRefusedByJsonb(failure)) {
                throw failure;
            }
            identity = identity.asBytes();
            store.inTransaction(this::once);
        }
    }

    private Store.Ended<Void> once(Database.Transaction transaction) throws Exception {
        Connection connection = transaction.connection();
        claimed = request.isUnprotected() ? Claimed.UNPROTECTED : begin(connection);
        if (!claimed.isExecution()) {
            return new Store.Ended<>(null, false);
        }
        if (refusal != null) {
            answer = refusal.answer();
            end(connection, refusal);
            return new Store.Ended<>(null, true);
        }
        ran = true;
        Judged judged = lent(connection);
        answer = judged.answer();
        if (!judged.isRecorded() || judged.withoutWork()) {
            refusal = judged.isRecorded() && !request.isUnprotected() ? judged : null;
            return new Store.Ended<>(null, false);
        }
        if (transaction.isRollbackOnly()) {
            throw new IllegalStateException("the transaction was marked for rollback, but the answer says " + answer.status());
        }
        if (request.isUnprotected()) {
            store.check(connection);
        } else {
            end(connection, judged);
        }
        return new Store.Ended<>(null, true);
    }

    /** Late work has failed, whatever it returns or throws. */
    private Judged lent(Connection connection) throws Exception {
        Execution execution = new Execution(claimed.key(), request.scope, request.principal, claimed.attempt());
        Lent lent = new Lent(connection);
        Limit limit = new Limit(request.handlerTimeout(Contract.HANDLER_TIMEOUT_MS), lent::close, () -> {
            Store.cut(connection);
            onGivenUp.run();
        });
        Judged judged;
        try (lent; limit) {
            judged = work.run(execution, lent.connection());
        } catch (Exception e) {
            throw limit.failure() == null ? e : limit.failure();
        }
        if (limit.failure() != null) {
            throw limit.failure();
        }
        return judged;
    }

    private void end(Connection connection, Judged judged) throws DatabaseFailure {
        store.within(connection, store.timeoutMillis, each -> {
            if (judged.verdict() == Verdict.UNKNOWN) {
                Statements.unknown(each, request.claimed(claimed), judged.reason(), null, null);
            } else {
                Statements.complete(each, request.claimed(claimed), judged.answer(), null);
            }
            return null;
        });
    }

    private Claimed begin(Connection connection) throws DatabaseFailure {
        if (identity == null) {
            identity = request.identity(store.json);
        }
        return store.within(connection, store.timeoutMillis + request.waitMillis(),
                each -> Statements.begin(each, request, identity, store.holder, true));
    }
}
