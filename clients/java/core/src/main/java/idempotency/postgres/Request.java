package idempotency.postgres;

import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * A request. {@code key} and {@code scope} name it, among the requests of {@code principal}. Its content, if
 * there is one, must be the same in every repeat. A request is immutable: each method makes another one.
 */
public final class Request implements Cloneable {
    static final Duration LEASE = Duration.ofMillis(Contract.LEASE_MS);
    static final Duration LONGEST = Duration.ofDays(36_500); // its nanoseconds are a long
    static final int ATTEMPTS = Contract.ATTEMPTS;

    String key;
    String scope;
    String principal;
    Duration derive;
    private Object content;
    private List<String> exclude = List.of();
    private Identity identity = Identity.NONE;
    Duration ttl;
    Duration lease = LEASE;
    Duration wait;
    int attempts = ATTEMPTS;
    private Duration handlerTimeout;

    private Request(String key, String scope, String principal) {
        this.key = key;
        this.scope = Objects.requireNonNull(scope, "scope");
        this.principal = Objects.requireNonNull(principal, "principal");
    }

    public static Request of(String key, String scope, String principal) {
        return new Request(Objects.requireNonNull(key, "key"), scope, principal);
    }

    /** A request without a key. The server derives one from the content, and forgets it after the window. */
    public static Request derived(Duration window, String scope, String principal) {
        Objects.requireNonNull(window, "window");
        checkPositive("window", window);
        return new Request(null, scope, principal).with(made -> made.derive = window).ttl(window);
    }

    /** A request that is not recorded: the work is done without a claim. */
    public static Request unprotected(String scope, String principal) {
        return new Request(null, scope, principal);
    }

    /** Compared as JSON, without these fields. */
    public Request content(Object content, String... exclude) {
        return with(made -> {
            made.content = content;
            made.exclude = List.of(exclude);
        });
    }

    public Request identity(Identity identity) {
        return with(made -> {
            made.content = null;
            made.identity = identity;
        });
    }

    /** How long the answer is replayed: by default the policy's ttl. */
    public Request ttl(Duration ttl) {
        checkPositive("ttl", ttl);
        return with(made -> made.ttl = ttl);
    }

    /** How long a leased claim may be silent: by default 30 s. */
    public Request lease(Duration lease) {
        checkPositive("lease", Objects.requireNonNull(lease, "lease"));
        return with(made -> made.lease = lease);
    }

    /** How long to wait for a running execution: by default it does not wait. */
    public Request wait(Duration wait) {
        check(wait == null || !wait.isNegative() && wait.compareTo(LONGEST) <= 0, "wait", "is negative or too long: " + wait);
        return with(made -> made.wait = wait);
    }

    /** How often to run work whose transaction fails to serialize or loses its connection: by default 5. */
    public Request attempts(int attempts) {
        check(attempts > 0, "attempts", "has to be above 0: " + attempts);
        return with(made -> made.attempts = attempts);
    }

    /**
     * Limit for one run of the work: by default a minute, and ten of leased work. Then the thread of the work is
     * interrupted, and {@link HandlerLate} is thrown when the work returns.
     */
    public Request handlerTimeout(Duration limit) {
        checkPositive("handlerTimeout", limit);
        return with(made -> made.handlerTimeout = limit);
    }

    Duration handlerTimeout(long defaultMillis) {
        return handlerTimeout == null ? Duration.ofMillis(defaultMillis) : handlerTimeout;
    }

    /** The same request, with the key of its claim. */
    Request claimed(Claimed claimed) {
        return with(made -> made.key = claimed.key());
    }

    static void checkPositive(String name, Duration value) {
        check(value == null || value.compareTo(Duration.ZERO) > 0 && value.compareTo(LONGEST) <= 0, name,
                "is not above 0, or too long: " + value);
    }

    static void check(boolean sound, String name, String complaint) {
        if (!sound) {
            throw new IllegalArgumentException("idempotency: " + name + " " + complaint);
        }
    }

    private Request with(Consumer<Request> change) {
        try {
            Request made = (Request) clone();
            change.accept(made);
            return made;
        } catch (CloneNotSupportedException itIsCloneable) {
            throw new AssertionError(itIsCloneable);
        }
    }

    boolean isUnprotected() {
        return key == null && derive == null;
    }

    Identity identity(Json json) {
        return content == null ? identity : Identity.ofJson(json.write(content), exclude);
    }

    long waitMillis() {
        return wait == null ? 0 : wait.toMillis();
    }
}
