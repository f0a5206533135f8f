package idempotency.postgres;

import idempotency.postgres.Verdict.Kept;
import java.util.function.Consumer;

/**
 * Work under a claim that commits before it, whose answer is stored with the token. Where the work says that
 * it is not to be kept, or fails, the claim is failed retryably, never released: the work may have had an
 * effect.
 */
final class Leased {
    private final Store store;
    private final Request request;
    private final Idempotency.LeasedHandler work;
    private Heartbeat heartbeat = Heartbeat.none();
    private Claimed claimed = Claimed.UNPROTECTED;
    private long sent;
    private Answer answer;
    private boolean stored;

    Leased(Store store, Request request, Idempotency.LeasedHandler work) {
        this.store = store;
        this.request = request;
        this.work = work;
    }

    Verdict run(Consumer<Claimed> onLost) {
        if (!request.isUnprotected()) {
            try {
                claimed = begin();
            } catch (Exception e) {
                return new Verdict(null, null, false, false, e);
            }
            if (!claimed.isExecution()) {
                return new Verdict(claimed, null, false, false, null);
            }
            heartbeat = new Heartbeat(request.lease, this::extend, () -> onLost.accept(claimed));
            heartbeat.start(sent);
        }
        Exception failure;
        try {
            failure = held();
        } finally {
            heartbeat.end();
        }
        return new Verdict(claimed, answer, true, !stored && heartbeat.isLost(), failure);
    }

    private Claimed begin() throws Exception {
        Identity identity = request.identity(store.json);
        return Store.again(request.attempts, () -> store.alone(store.timeoutMillis + request.waitMillis(), connection -> {
            sent = System.nanoTime();
            return Statements.begin(connection, request, identity, store.holder, false);
        }));
    }

    private void extend(long millis, Runnable sending) throws DatabaseFailure {
        store.alone(millis, connection -> {
            sending.run();
            Statements.extend(connection, request, claimed.token());
            return null;
        });
    }

    private Exception held() {
        Kept kept;
        try (Interruption working = heartbeat.working()) {
            kept = work.run(new Claim(store, request, claimed, heartbeat));
        } catch (Exception e) {
            heartbeat.stopBeating();
            fail(e.toString());
            return e;
        } catch (Throwable e) {
            heartbeat.stopBeating();
            fail(e.toString());
            throw e;
        }
        heartbeat.stopBeating();
        answer = kept.answer();
        if (!kept.keep()) {
            fail("status " + answer.status());
            return null;
        }
        return complete();
    }

    private void fail(String reason) {
        if (request.isUnprotected() || heartbeat.isLost()) {
            return;
        }
        try {
            Store.again(request.attempts, () -> store.alone(connection -> {
                Statements.fail(connection, request, Statements.sanitized(reason), claimed.token());
                return null;
            }));
        } catch (Exception e) {
            // Without the database the end of the lease says the same.
            if (DatabaseFailure.isLost(e)) {
                heartbeat.lose();
            }
        }
    }

    /**
     * Tries for as long as the claim is held: the work is done, and its answer is worth the wait. The second
     * time changes nothing.
     */
    private Exception complete() {
        if (request.isUnprotected()) {
            return null;
        }
        for (int attempt = 1;; attempt++) {
            if (heartbeat.isLost()) {
                return null;
            }
            try {
                store.alone(connection -> {
                    Statements.complete(connection, request, answer, claimed.token());
                    return null;
                });
                stored = true;
                return null;
            } catch (DatabaseFailure e) {
                if (DatabaseFailure.isLost(e)) {
                    heartbeat.lose();
                    return null;
                }
                if (!DatabaseFailure.isUnavailable(e)) {
                    fail(String.valueOf(e.getCause()));
                    return e;
                }
            }
            try {
                Store.pause(attempt);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return e;
            }
        }
    }
}
