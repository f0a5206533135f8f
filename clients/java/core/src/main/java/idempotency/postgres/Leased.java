package idempotency.postgres;

import idempotency.postgres.Result.Judged;
import java.util.function.Consumer;

/**
 * Work under a claim that commits before it; the token stores its answer. If the answer is not to be kept, or
 * the work fails, the claim is failed retryably, never released. The failure is reported as one that may have
 * had its effect, except after a {@link NothingHappenedException}.
 */
final class Leased {
    private final Store store;
    private final Request request;
    private final Idempotency.LeasedHandler work;
    private final Runnable onGivenUp;
    private Hold hold;
    private long sent;
    private Answer answer;
    private boolean stored;

    Leased(Store store, Request request, Idempotency.LeasedHandler work, Runnable onGivenUp) {
        this.store = store;
        this.request = request;
        this.work = work;
        this.onGivenUp = onGivenUp;
    }

    Result run(Consumer<Claimed> onLost) {
        if (request.isUnprotected()) {
            return run(Hold.none(store, request));
        }
        Claimed claimed;
        try {
            claimed = begin();
        } catch (Exception e) {
            return new Result(null, null, false, false, e);
        }
        if (!claimed.isExecution()) {
            return new Result(claimed, null, false, false, null);
        }
        return run(Hold.of(store, request, claimed, sent, () -> onLost.accept(claimed)));
    }

    /** With a claim that has been granted. */
    Result run(Hold granted) {
        hold = granted;
        Exception failure;
        try {
            failure = held();
        } finally {
            hold.heartbeat.end();
        }
        return new Result(hold.claimed, answer, true, !stored && hold.heartbeat.isLost(), failure);
    }

    private Claimed begin() throws Exception {
        Identity identity = request.identity(store.json);
        try {
            return begin(request, identity);
        } catch (DatabaseFailure failure) {
            if (!identity.isRefusedByJsonb(failure)) {
                throw failure;
            }
            return begin(request, identity.asBytes());
        }
    }

    private Claimed begin(Request request, Identity identity) throws Exception {
        return Store.again(request.attempts, () -> store.alone(store.timeoutMillis + request.waitMillis(), connection -> {
            sent = System.nanoTime();
            return Statements.begin(connection, request, identity, store.holder, false);
        }));
    }

    private Exception held() {
        Claim claim = new Claim(hold);
        Judged judged;
        Limit limit = new Limit(request.handlerTimeout(Contract.LEASED_HANDLER_TIMEOUT_MS), claim::close, () -> giveUp(claim));
        try (Interruption working = hold.heartbeat.working(); limit) {
            judged = work.run(claim);
        } catch (Exception e) {
            if (limit.failure() != null) {
                return late(claim, limit);
            }
            fail(claim, e);
            return e;
        } catch (Throwable e) {
            fail(claim, e);
            throw e;
        }
        if (limit.failure() != null) {
            return late(claim, limit);
        }
        hold.heartbeat.stopBeating();
        answer = judged.answer();
        stored = claim.isUnknown();
        if (stored) {
            return null;
        }
        if (!judged.isRecorded()) {
            hold.fail(judged.failure(), judged.reason(), judged.verdict() != Verdict.FREE);
            return null;
        }
        return end(judged);
    }

    /** Late work has failed, whatever it returns or throws. */
    private Exception late(Claim claim, Limit limit) {
        if (!limit.isGivenUp()) {
            fail(claim, limit.failure());
        }
        return limit.failure();
    }

    /** Called by another thread than the work's. */
    private void giveUp(Claim claim) {
        fail(claim, new HandlerLate(request.handlerTimeout(Contract.LEASED_HANDLER_TIMEOUT_MS)));
        hold.heartbeat.end();
        onGivenUp.run();
    }

    private void fail(Claim claim, Throwable failure) {
        hold.heartbeat.stopBeating();
        stored = claim.isUnknown();
        if (!stored) {
            hold.fail(failure, null, true);
        }
    }

    private Exception end(Judged judged) {
        if (hold.isUnprotected()) {
            return null;
        }
        try {
            stored = whileHeld(store, hold.heartbeat, connection -> {
                if (judged.verdict() == Verdict.UNKNOWN) {
                    Statements.unknown(connection, hold.request, judged.reason(), null, hold.claimed.token());
                } else {
                    Statements.complete(connection, hold.request, answer, hold.claimed.token());
                }
                return null;
            });
            return null;
        } catch (DatabaseFailure e) {
            hold.fail(e, null, true);
            return e;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return e;
        }
    }

    /**
     * Tries as long as the claim is held: the work is done, so its completion is worth the wait. A second
     * completion changes nothing. False if the claim is lost.
     */
    static boolean whileHeld(Store store, Heartbeat heartbeat, Store.Statement<Void> end)
            throws DatabaseFailure, InterruptedException {
        for (int attempt = 1; !heartbeat.isLost(); attempt++) {
            try {
                store.alone(end);
                return true;
            } catch (DatabaseFailure e) {
                if (DatabaseFailure.isLost(e)) {
                    heartbeat.lose();
                    return false;
                }
                if (!DatabaseFailure.isUnavailable(e)) {
                    throw e;
                }
            }
            Store.pause(attempt);
        }
        return false;
    }
}
