package idempotency.postgres;

import java.time.Duration;
import java.util.Optional;

/** Work was not done: somebody else does it, or it was another request, or it has failed for good. */
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
