package idempotency.postgres.servlet;

import idempotency.postgres.Contract;
import idempotency.postgres.Key;
import idempotency.postgres.Request;
import java.time.Duration;
import java.util.Locale;

/** Refuses options that cannot be meant, where a route is made. Otherwise a typo would switch protection off. */
final class Options {
    private static final int LARGEST_BODY = Integer.MAX_VALUE - 16; // an array has no more

    private Options() {}

    static void check(Route route) {
        checkGiven(route);
        checkNames(route);
        route.limits(Request.derived(window(route), "", "").ttl(route.ttl));
        check(route.window == null || route.missingKey == MissingKey.DERIVE, "window", "is for MissingKey.DERIVE alone");
        check(route.maxRequestBytes >= 0 && route.maxRequestBytes <= LARGEST_BODY, "maxRequestBytes", "is from 0 to " + LARGEST_BODY);
        check(route.maxAnswerBytes >= 0, "maxAnswerBytes", "is negative");
        check(route.exclude.isEmpty() || route.fingerprint == null, "exclude", "has no meaning beside fingerprint");
        route.statuses.forEach((word, status) -> {
            check(Contract.PROBLEMS.containsKey(word), "status", "has no outcome \"" + word + "\"");
            check(status >= 400 && status <= 599, "status", "of " + word + " is from 400 to 599, and not " + status);
        });
    }

    static Duration window(Route route) {
        return route.window == null ? Duration.ofMillis(Contract.WINDOW_MS) : route.window;
    }

    private static void checkGiven(Route route) {
        check(route.scope != null, "scope", "is missing");
        check(route.missingKey != null, "missingKey", "is missing");
        check(route.keep != null, "keep", "is missing");
        check(route.onExecute != null, "onExecute", "is missing");
        check(route.onReplay != null, "onReplay", "is missing");
        check(route.onRefusal != null, "onRefusal", "is missing");
        check(route.onLeaseLost != null, "onLeaseLost", "is missing");
    }

    private static void checkNames(Route route) {
        check(isToken(route.keyHeader), "keyHeader", "is no name of a field: " + route.keyHeader);
        check(isToken(route.replayHeader), "replayHeader", "is no name of a field: " + route.replayHeader);
        check(!route.keyHeader.equalsIgnoreCase(route.replayHeader), "replayHeader", "is that of the key: " + route.replayHeader);
        check(!route.methods.isEmpty(), "methods", "are none");
        // Those of HTTP are in upper case, and others never match.
        route.methods.forEach(name ->
                check(isToken(name) && name.equals(name.toUpperCase(Locale.ROOT)), "methods", "have no \"" + name + "\""));
        check(!route.exclude.contains(""), "exclude", "has an empty entry");
    }

    private static boolean isToken(String name) {
        return name != null && !name.isEmpty() && name.chars().allMatch(Key::isToken);
    }

    static void check(boolean sound, String option, String complaint) {
        if (!sound) {
            throw new IllegalArgumentException("idempotency: " + option + " " + complaint);
        }
    }
}
