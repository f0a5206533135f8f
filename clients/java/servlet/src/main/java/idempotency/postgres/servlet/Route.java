package idempotency.postgres.servlet;

import idempotency.postgres.Answer;
import idempotency.postgres.Contract;
import idempotency.postgres.Request;
import idempotency.postgres.Verdict;
import jakarta.servlet.http.HttpServletRequest;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.IntPredicate;

/** The protection of requests. A filter copies its route. */
public final class Route implements Cloneable {
    /** All statuses except those that another attempt may cure, and server faults. */
    public static final IntPredicate KEEP_BY_DEFAULT = Answer::isKept;

    Function<HttpServletRequest, String> principal;
    Function<HttpServletRequest, String> scope = Route::methodAndPattern;
    Set<String> methods = Set.of("POST", "PATCH");
    MissingKey missingKey = MissingKey.REFUSE;
    Duration window;
    List<String> exclude = List.of();
    BiFunction<HttpServletRequest, byte[], byte[]> fingerprint;
    Duration ttl;
    Duration lease = Duration.ofMillis(Contract.LEASE_MS);
    Duration wait;
    IntPredicate keep = KEEP_BY_DEFAULT;
    Function<Answer, Verdict> verdict;
    Map<String, Integer> statuses = new HashMap<>();
    String keyHeader = "Idempotency-Key";
    String replayHeader = "Idempotent-Replayed";
    boolean echoKey;
    long maxRequestBytes = Contract.MAX_REQUEST_BYTES;
    long maxAnswerBytes = Contract.MAX_ANSWER_BYTES;
    boolean omitLargeAnswers;
    int attempts = Contract.ATTEMPTS;
    Duration handlerTimeout;
    boolean unprotectedWithoutDatabase;
    Consumer<Event> onExecute = Event.NOBODY;
    Consumer<Event> onReplay = Event.NOBODY;
    Consumer<Event> onRefusal = Event.NOBODY;
    Consumer<Event> onLeaseLost = Event.NOBODY;

    private Route(Function<HttpServletRequest, String> principal) {
        this.principal = Objects.requireNonNull(principal, "principal");
    }

    /**
     * @param principal the client that a request comes from, by its authentication: null or "" is answered 401,
     *     before any byte of the body is read
     */
    public static Route of(Function<HttpServletRequest, String> principal) {
        return new Route(principal);
    }

    /** The operation: by default method and pattern of the servlet, {@code POST /payments}. */
    public Route scope(String scope) {
        Options.check(scope != null && !scope.isEmpty(), "scope", "is empty");
        return scope(request -> scope);
    }

    public Route scope(Function<HttpServletRequest, String> scope) {
        this.scope = scope;
        return this;
    }

    /** The protected methods, by default POST and PATCH. Others pass. */
    public Route methods(String... methods) {
        this.methods = Set.of(methods);
        return this;
    }

    public Route missingKey(MissingKey missingKey) {
        this.missingKey = missingKey;
        return this;
    }

    /** How long a derived key counts: by default a day. The server forgets it then, whatever the policy retains. */
    public Route window(Duration window) {
        this.window = window;
        return this;
    }

    /** Fields of the JSON body that may differ in repeats. */
    public Route exclude(String... fields) {
        this.exclude = List.copyOf(Arrays.asList(fields));
        return this;
    }

    /** Bytes of the request and its body, to compare instead of method, target and body. */
    public Route fingerprint(BiFunction<HttpServletRequest, byte[], byte[]> fingerprint) {
        this.fingerprint = fingerprint;
        return this;
    }

    /** How long an answer is replayed: by default the policy's ttl. */
    public Route ttl(Duration ttl) {
        this.ttl = ttl;
        return this;
    }

    /** How long a leased claim may be silent: by default 30 s. */
    public Route lease(Duration lease) {
        this.lease = lease;
        return this;
    }

    /** How long a repeat waits for a running execution: by default it does not wait. */
    public Route wait(Duration wait) {
        this.wait = wait;
        return this;
    }

    /** Which answers are stored and replayed, by their status. */
    public Route keep(IntPredicate keep) {
        this.keep = keep;
        return this;
    }

    /** What becomes of an answer. Where it returns null, {@link #keep} decides. */
    public Route verdict(Function<Answer, Verdict> verdict) {
        this.verdict = verdict;
        return this;
    }

    /** A status instead of that of {@code idem_http_status}; {@code unavailable} is 503 by default. */
    public Route status(String outcome, int status) {
        statuses.put(outcome, status);
        return this;
    }

    public Route keyHeader(String name) {
        this.keyHeader = name;
        return this;
    }

    public Route replayHeader(String name) {
        this.replayHeader = name;
        return this;
    }

    /** Whether every answer carries the key's header. */
    public Route echoKey(boolean echoKey) {
        this.echoKey = echoKey;
        return this;
    }

    public Route maxRequestBytes(long bytes) {
        this.maxRequestBytes = bytes;
        return this;
    }

    public Route maxAnswerBytes(long bytes) {
        this.maxAnswerBytes = bytes;
        return this;
    }

    /** Stores only the status of a larger answer, instead of failing. */
    public Route omitLargeAnswers(boolean omit) {
        this.omitLargeAnswers = omit;
        return this;
    }

    /** How often to run a handler whose transaction fails to serialize, deadlocks or loses its connection. */
    public Route attempts(int attempts) {
        this.attempts = attempts;
        return this;
    }

    /** Limit for one run of a handler: by default a minute, and ten of a leased route. Then the answer is 503. */
    public Route handlerTimeout(Duration limit) {
        this.handlerTimeout = limit;
        return this;
    }

    /** Runs handlers while the database is away, without a transaction and without protection. */
    public Route unprotectedWithoutDatabase(boolean unprotected) {
        this.unprotectedWithoutDatabase = unprotected;
        return this;
    }

    public Route onExecute(Consumer<Event> hook) {
        this.onExecute = hook;
        return this;
    }

    public Route onReplay(Consumer<Event> hook) {
        this.onReplay = hook;
        return this;
    }

    public Route onRefusal(Consumer<Event> hook) {
        this.onRefusal = hook;
        return this;
    }

    /** Called by another thread than the request's. */
    public Route onLeaseLost(Consumer<Event> hook) {
        this.onLeaseLost = hook;
        return this;
    }

    Request limits(Request request) {
        return request.lease(lease).wait(wait).attempts(attempts).handlerTimeout(handlerTimeout);
    }

    public Route copy() {
        try {
            Route copy = (Route) clone();
            copy.statuses = new HashMap<>(statuses);
            return copy;
        } catch (CloneNotSupportedException itIsCloneable) {
            throw new AssertionError(itIsCloneable);
        }
    }

    private static String methodAndPattern(HttpServletRequest request) {
        String pattern = request.getHttpServletMapping() == null ? "" : request.getHttpServletMapping().getPattern();
        // A servlet for everything has routes of its own.
        boolean everything = pattern.isEmpty() || pattern.equals("/") || pattern.equals("/*");
        return request.getMethod() + " " + (everything ? request.getRequestURI() : request.getContextPath() + pattern);
    }
}
