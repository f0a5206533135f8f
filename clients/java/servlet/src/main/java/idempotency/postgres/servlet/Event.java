package idempotency.postgres.servlet;

import java.util.function.Consumer;

/**
 * The argument of hooks.
 *
 * @param key null if there is none
 * @param outcome {@code execute}, {@code replay}, {@code lost}, or why a request was refused
 */
public record Event(String scope, String key, int attempt, String outcome) {
    /** The default hook. */
    static final Consumer<Event> NOBODY = event -> { };

    /** Without the key, which may be a secret: printing an event must not disclose it. */
    @Override
    public String toString() {
        return "Event[scope=" + scope + ", attempt=" + attempt + ", outcome=" + outcome + "]";
    }
}
