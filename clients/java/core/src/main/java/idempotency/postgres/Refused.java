package idempotency.postgres;

import java.time.Duration;
import java.util.Optional;

/**
 * The work was not done: another execution runs, the key belongs to another request, or the request failed for
 * good.
 */
public class Refused extends RuntimeException {
    private final String outcome;
    private final Duration retryAfter;

    Refused(Claimed claimed, String outcome) {
        super(outcome + (claimed.error() == null ? "" : ": " + claimed.error()));
        this.outcome = outcome;
        this.retryAfter = claimed.retryAfter() == null ? null : Duration.ofMillis((long) (claimed.retryAfter() * 1000));
    }

    /** One of {@link Outcome}. */
    public String outcome() {
        return outcome;
    }

    public Optional<Duration> retryAfter() {
        return Optional.ofNullable(retryAfter);
    }
}
