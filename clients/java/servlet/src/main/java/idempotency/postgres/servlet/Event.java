package idempotency.postgres.servlet;

import java.util.function.Consumer;

/**
 * What hooks get.
 *
 * @param key null where there is none
 * @param outcome {@code execute}, {@code replay}, {@code lost}, or why a request was refused
 */
public record Event(String scope, String key, int attempt, String outcome) {
    /** A hook that nothing hangs on. */
    static final Consumer<Event> NOBODY = event -> { };

    /** Without the key, which may be a secret: whoever prints an event means no such thing. */
    @Override
    public String toString() {
        return "Event[scope=" + scope + ", attempt=" + attempt + ", outcome=" + outcome + "]";
    }
}
