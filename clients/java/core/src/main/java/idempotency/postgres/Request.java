package idempotency.postgres;

import java.time.Duration;
import java.util.List;
import java.util.Objects;

/**
 * What is asked for. {@code key} and {@code scope} name it, within what {@code principal} asks for; its
 * content, if there is one, has to be the same in every repeat.
 */
public final class Request {
    static final Duration LEASE = Duration.ofSeconds(30);
    static final int ATTEMPTS = 5;

    final String key;
    final String scope;
    final String principal;
    final Object content;
    final List<String> exclude;
    final Identity identity;
    final Duration ttl;
    final Duration lease;
    final Duration wait;
    final int attempts;

    private Request(String key, String scope, String principal, Object content, List<String> exclude,
            Identity identity, Duration ttl, Duration lease, Duration wait, int attempts) {
        this.key = key;
        this.scope = scope;
        this.principal = principal;
        this.content = content;
        this.exclude = exclude;
        this.identity = identity;
        this.ttl = ttl;
        this.lease = lease;
        this.wait = wait;
        this.attempts = attempts;
    }

    public static Request of(String key, String scope, String principal) {
        return new Request(Objects.requireNonNull(key, "key"), Objects.requireNonNull(scope, "scope"),
                Objects.requireNonNull(principal, "principal"), null, List.of(), Identity.NONE, null, LEASE, null,
                ATTEMPTS);
    }

    /** A request that nobody remembers: the work is done without a claim. */
    public static Request unprotected(String scope, String principal) {
        return new Request(null, scope, principal, null, List.of(), Identity.NONE, null, LEASE, null, ATTEMPTS);
    }

    /** Compared as JSON, without these fields. */
    public Request content(Object content, String... exclude) {
        return new Request(key, scope, principal, content, List.of(exclude), identity, ttl, lease, wait, attempts);
    }

    public Request identity(Identity identity) {
        return new Request(key, scope, principal, null, List.of(), identity, ttl, lease, wait, attempts);
    }

    /** How long the answer is replayed: by default as the policy says. */
    public Request ttl(Duration ttl) {
        return new Request(key, scope, principal, content, exclude, identity, ttl, lease, wait, attempts);
    }

    /** How long a leased claim may be silent: by default 30 s. */
    public Request lease(Duration lease) {
        return new Request(key, scope, principal, content, exclude, identity, ttl, lease, wait, attempts);
    }

    /** How long to wait for a running execution: by default not at all. */
    public Request wait(Duration wait) {
        return new Request(key, scope, principal, content, exclude, identity, ttl, lease, wait, attempts);
    }

    /** How often work is run whose transaction fails to serialize or loses its connection: by default 5. */
    public Request attempts(int attempts) {
        return new Request(key, scope, principal, content, exclude, identity, ttl, lease, wait, attempts);
    }

    boolean isUnprotected() {
        return key == null;
    }

    Identity identity(Json json) {
        return content == null ? identity : Identity.ofJson(json.write(content), exclude);
    }

    long waitMillis() {
        return wait == null ? 0 : wait.toMillis();
    }
}
