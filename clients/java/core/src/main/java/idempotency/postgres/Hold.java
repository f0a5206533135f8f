package idempotency.postgres;

/** A claim with a lease, kept by beats from its grant to its end. */
final class Hold {
    final Store store;
    final Request request;
    final Claimed claimed;
    final Heartbeat heartbeat;

    private Hold(Store store, Request request, Claimed claimed, Heartbeat heartbeat) {
        this.store = store;
        this.request = request;
        this.claimed = claimed;
        this.heartbeat = heartbeat;
    }

    /** For work without a record. */
    static Hold none(Store store, Request request) {
        return new Hold(store, request, Claimed.UNPROTECTED, Heartbeat.none());
    }

    /** Of a claim that was requested at this moment. */
    static Hold of(Store store, Request request, Claimed claimed, long sent, Runnable onLost) {
        Request granted = request.claimed(claimed);
        Heartbeat.Beat beat = (millis, sending) -> store.alone(millis, connection -> {
            sending.run();
            Statements.extend(connection, granted, claimed.token());
            return null;
        });
        Heartbeat heartbeat = new Heartbeat(request.lease, beat, onLost);
        heartbeat.start(sent);
        return new Hold(store, granted, claimed, heartbeat);
    }

    boolean isUnprotected() {
        return claimed.token() == null;
    }

    /** {@code otherwise} is the reason if there is no exception; {@code uncertain} whether the work may have had its effect. */
    void fail(Throwable failure, String otherwise, boolean uncertain) {
        if (isUnprotected() || heartbeat.isLost()) {
            return;
        }
        NothingHappenedException nothing = NothingHappenedException.of(failure);
        Throwable cause = failure instanceof DatabaseFailure ours ? ours.getCause() : failure;
        String reason = nothing != null ? nothing.getMessage() : cause != null ? cause.toString() : otherwise;
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
}
