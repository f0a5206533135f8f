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
    private Request request;
    private final Idempotency.LeasedHandler work;
    private final Runnable onGivenUp;
    private Heartbeat heartbeat = Heartbeat.none();
    private Claimed claimed = Claimed.UNPROTECTED;
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
        if (!request.isUnprotected()) {
            try {
                claimed = begin();
                request = request.claimed(claimed);
            } catch (Exception e) {
                return new Result(null, null, false, false, e);
            }
            if (!claimed.isExecution()) {
                return new Result(claimed, null, false, false, null);
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
        return new Result(claimed, answer, true, !stored && heartbeat.isLost(), failure);
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

    private void extend(long millis, Runnable sending) throws DatabaseFailure {
        store.alone(millis, connection -> {
            sending.run();
            Statements.extend(connection, request, claimed.token());
            return null;
        });
    }

    private Exception held() {
        Claim claim = new Claim(store, request, claimed, heartbeat);
        Judged judged;
        Limit limit = new Limit(request.handlerTimeout(Contract.LEASED_HANDLER_TIMEOUT_MS), claim::close, () -> giveUp(claim));
        try (Interruption working = heartbeat.working(); limit) {
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
        heartbeat.stopBeating();
        answer = judged.answer();
        stored = claim.isUnknown();
        if (stored) {
            return null;
        }
        if (!judged.isRecorded()) {
            fail(judged.failure(), judged.reason(), judged.verdict() != Verdict.FREE);
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
        heartbeat.end();
        onGivenUp.run();
    }

    private void fail(Claim claim, Throwable failure) {
        heartbeat.stopBeating();
        stored = claim.isUnknown();
        if (!stored) {
            fail(failure, null, true);
        }
    }

    /** {@code otherwise} is the reason if there is no exception; {@code uncertain} whether the work may have had its effect. */
    private void fail(Throwable failure, String otherwise, boolean uncertain) {
        if (request.isUnprotected() || heartbeat.isLost()) {
            return;
        }
        NothingHappenedException nothing = NothingHappenedException.of(failure);
        String reason = nothing != null ? nothing.getMessage() : failure != null ? failure.toString() : otherwise;
        try {
            Store.again(request.attempts, () -> store.alone(connection -> {
                Statements.fail(connection, request, Statements.sanitized(reason), claimed.token(), uncertain && nothing == null);
                return null;
            }));
        } catch (Exception e) {
            // If the database is away, the lease expires, with the same effect.
            if (DatabaseFailure.isLost(e)) {
                heartbeat.lose();
            }
        }
    }

    private Exception end(Judged judged) {
        if (request.isUnprotected()) {
            return null;
        }
        try {
            stored = whileHeld(store, heartbeat, connection -> {
                if (judged.verdict() == Verdict.UNKNOWN) {
                    Statements.unknown(connection, request, judged.reason(), null, claimed.token());
                } else {
                    Statements.complete(connection, request, answer, claimed.token());
                }
                return null;
            });
            return null;
        } catch (DatabaseFailure e) {
            fail(e.getCause(), null, true);
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
