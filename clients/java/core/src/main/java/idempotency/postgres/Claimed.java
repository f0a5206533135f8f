package idempotency.postgres;

/** The answer of {@code idem_begin}. Unknown values are null. */
public record Claimed(String outcome, String key, Long token, int attempt, String status, Integer statusCode,
        String headers, byte[] body, boolean bodyOmitted, String error, String recoveryPoint, String state, Double retryAfter) {
    static final Claimed UNPROTECTED =
            new Claimed(Outcome.EXECUTE, null, null, 1, null, null, null, null, false, null, null, null, null);

    public boolean isExecution() {
        return Outcome.EXECUTE.equals(outcome);
    }

    public boolean isReplay() {
        return Outcome.REPLAY.equals(outcome);
    }

    boolean isInProgress() {
        return Outcome.IN_PROGRESS.equals(outcome);
    }
}
