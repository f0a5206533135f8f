package idempotency.postgres.servlet;

import idempotency.postgres.Answer;
import idempotency.postgres.Claimed;
import idempotency.postgres.DatabaseFailure;
import idempotency.postgres.Execution;
import idempotency.postgres.HandlerLate;
import idempotency.postgres.Idempotency;
import idempotency.postgres.Identity;
import idempotency.postgres.Key;
import idempotency.postgres.Outcome;
import idempotency.postgres.Request;
import idempotency.postgres.Result;
import idempotency.postgres.Result.Judged;
import idempotency.postgres.Verdict;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A request and its answer. */
final class Exchange {
    private static final Logger LOG = LoggerFactory.getLogger(IdempotencyFilter.class);
    private static final double SOON = 1;

    private final Idempotency idempotency;
    private final Route route;
    private final boolean leased;
    private final HttpServletRequest request;
    private final HttpServletResponse response;
    private final FilterChain chain;

    private String scope;
    private String principal;
    private volatile String key; // also read by the thread that reports a loss
    private boolean showKey;
    private byte[] body;
    private Request asked;
    private CapturedResponse captured;
    private boolean told;
    /** Whether another thread has answered, because the handler's did not return. */
    private volatile boolean answered;

    Exchange(Idempotency idempotency, Route route, boolean leased, HttpServletRequest request,
            HttpServletResponse response, FilterChain chain) {
        this.idempotency = idempotency;
        this.route = route;
        this.leased = leased;
        this.request = request;
        this.response = response;
        this.chain = chain;
    }

    void serve() throws IOException, ServletException {
        scope = route.scope.apply(request);
        showKey = route.echoKey;
        // The principal, before any byte of the body is read.
        principal = route.principal.apply(request);
        if (principal == null || principal.isEmpty()) {
            refuseUnread(Problem.PRINCIPAL.word(), Problem.PRINCIPAL.answer(route, null));
            return;
        }
        String refusal = readKey();
        if (refusal != null) {
            refuseUnread(refusal, Problem.of(idempotency, route, refusal, null));
            return;
        }
        Identity identity;
        try {
            body = Body.read(request, route.maxRequestBytes);
            identity = Body.identity(route, request, body);
        } catch (Body.Refused e) {
            refuseUnread(e.problem.word(), e.problem.answer(route, null));
            return;
        }
        try {
            conclude(run(identity), identity);
        } finally {
            closeCaptured();
        }
    }

    private Result run(Identity identity) {
        asked = asked(identity);
        Result result = !leased
                ? idempotency.runTransactional(asked, (execution, connection) -> handle(new Current(execution, connection, null)),
                        this::answerInPlace)
                : idempotency.runLeased(asked, claimed -> tell(route.onLeaseLost, "lost", claimed.attempt()),
                        claim -> handle(new Current(claim.execution(), null, claim)), this::answerInPlace);
        if (result.claimed() != null) {
            key = result.claimed().key(); // the server may have derived it
        }
        return result;
    }

    /** Reads the field as it was sent. Returns the word of a refusal, or null. */
    private String readKey() {
        List<String> fields = Collections.list(request.getHeaders(route.keyHeader));
        if (fields.isEmpty()) {
            return route.missingKey == MissingKey.REFUSE ? Outcome.MISSING_KEY : null;
        }
        String parsed = Key.parse(fields.get(0));
        if (fields.size() > 1 || parsed == null) {
            return Outcome.BAD_KEY;
        }
        key = parsed;
        return null;
    }

    private Request asked(Identity identity) {
        return route.limits(named().identity(identity));
    }

    private Request named() {
        showKey |= key == null;
        if (key == null && route.missingKey == MissingKey.DERIVE) {
            return Request.derived(Options.window(route), scope, principal);
        }
        if (key == null && route.missingKey == MissingKey.GENERATE) {
            key = Key.generate();
        }
        return (key == null ? Request.unprotected(scope, principal) : Request.of(key, scope, principal)).ttl(route.ttl);
    }

    /** Runs the handler once. */
    private Judged handle(Current current) throws Exception {
        key = current.execution().key();
        if (!told) {
            told = true;
            tell(route.onExecute, Outcome.EXECUTE, current.execution().attempt());
        }
        closeCaptured();
        captured = new CapturedResponse(response, route.maxAnswerBytes, route.omitLargeAnswers);
        current.put(request);
        Exception failure;
        try {
            chain.doFilter(new CapturedRequest(request, body), captured);
            failure = Current.failure(request);
        } finally {
            Current.remove(request);
        }
        captured.freeze();
        if (captured.isTooLarge()) {
            throw new Spool.TooLarge();
        }
        // A request that failed never gets a success answer, whatever the handler made of the failure.
        if (failure != null && (captured.getStatus() < 400 || DatabaseFailure.isUnavailable(failure))) {
            throw failure instanceof Raised raised ? raised.failure() : failure;
        }
        Verdict verdict = failure == null || failure instanceof Raised ? verdict(failure) : null;
        // An answer that is not kept may still be an error for the container's page.
        Answer answer = verdict == Verdict.KEEP || !captured.isError() ? captured.answer() : Answer.omitted(captured.getStatus());
        return new Judged(answer, verdict, failure, failure instanceof Raised);
    }

    /** The route's; without one, the status decides. A raised 5xx is never kept by its status. */
    private Verdict verdict(Exception failure) {
        Verdict verdict = route.verdict == null ? null : route.verdict.apply(captured.shown());
        int status = captured.getStatus();
        boolean kept = (failure == null || status < 500) && route.keep.test(status);
        return verdict != null ? verdict : kept ? Verdict.KEEP : null;
    }

    /** Answers the client. */
    private void conclude(Result result, Identity identity) throws IOException, ServletException {
        Claimed claimed = result.claimed();
        if (answered) {
            return;
        }
        if (result.lost()) { // the new owner of the claim will answer
            answer(Problem.of(idempotency, route, Outcome.IN_PROGRESS, null));
        } else if (result.failure() != null) {
            answerFailure(result, identity);
        } else if (claimed.isExecution()) {
            echo();
            captured.sendTo(response);
        } else if (claimed.isReplay()) {
            replay(claimed);
        } else {
            tell(route.onRefusal, claimed.outcome(), claimed.attempt());
            answer(Problem.of(idempotency, route, claimed.outcome(), claimed.retryAfter()));
        }
    }

    private void replay(Claimed claimed) throws IOException {
        tell(route.onReplay, Outcome.REPLAY, claimed.attempt());
        response.setHeader(route.replayHeader, "true");
        Answer stored = Answer.of(claimed);
        answer(stored == null ? Problem.of(idempotency, route, Outcome.FAILED, null) : stored);
    }

    /** For results without an outcome. The container answers exceptions of the handler. */
    private void answerFailure(Result result, Identity identity) throws IOException, ServletException {
        Exception failure = result.failure();
        String state = DatabaseFailure.sqlState(failure);
        boolean ours = failure instanceof DatabaseFailure;
        boolean beforeWork = result.claimed() == null && ours;
        if (failure instanceof HandlerLate) {
            captured.abandon();
            log(failure);
            answer(Problem.LATE.answer(route, null));
        } else if (beforeWork && identity.json() != null && Set.of("22P02", "22021").contains(state)) {
            refuse(Problem.JSON, null);
        } else if (beforeWork && Set.of("54000", "54001").contains(state)) {
            refuse(Problem.TOO_LARGE, null);
        } else if (DatabaseFailure.isUnavailable(failure)) {
            log(failure);
            if (route.unprotectedWithoutDatabase && !result.ran()) {
                runUnprotected();
            } else {
                refuse(Problem.UNAVAILABLE, SOON);
            }
        } else if (failure instanceof Spool.TooLarge || captured != null && captured.isTooLarge() || ours && state.equals("54000")) {
            log(failure);
            answer(Problem.ANSWER.answer(route, null));
        } else if (ours) {
            log(failure);
            answer(Problem.INTERNAL.answer(route, null));
        } else {
            rethrow(failure);
        }
    }

    private static void rethrow(Exception failure) throws IOException, ServletException {
        if (failure instanceof RuntimeException e) {
            throw e;
        }
        if (failure instanceof IOException e) {
            throw e;
        }
        throw failure instanceof ServletException e ? e : new ServletException(failure);
    }

    /** The handler runs without a connection, because there is none, and with a claim that has no record. */
    private void runUnprotected() throws IOException, ServletException {
        Execution execution = new Execution(key, scope, principal, 1);
        try {
            handle(new Current(execution, null, leased ? idempotency.claimOfNobody(asked) : null));
        } catch (Exception e) {
            rethrow(e);
        }
        echo();
        captured.sendTo(response);
    }

    /**
     * Answers while the handler's thread does not return: called by another one, for which that one waits if it
     * returns. The connection has to close, since its next request would wait as well.
     */
    private void answerInPlace() {
        answered = true;
        captured.abandon();
        LOG.error("idempotency: the handler is late and does not react to its interruption, scope {}", scope);
        try {
            if (request.getProtocol().startsWith("HTTP/1")) {
                response.setHeader("Connection", "close");
            }
            answer(Problem.LATE.answer(route, null));
            response.flushBuffer();
        } catch (IOException | RuntimeException itsClientIsAway) {
            log(itsClientIsAway);
        }
    }

    private void refuse(Problem problem, Double retryAfter) throws IOException {
        tell(route.onRefusal, problem.word(), 0);
        answer(problem.answer(route, retryAfter));
    }

    /** Closes the connection after an answer to an unread body: the server does not read the rest of it. */
    private void refuseUnread(String word, Answer problem) throws IOException {
        if (request.getContentLengthLong() != 0 && request.getProtocol().startsWith("HTTP/1")) {
            response.setHeader("Connection", "close");
        }
        tell(route.onRefusal, word, 0);
        answer(problem);
        response.flushBuffer();
    }

    private void answer(Answer answer) throws IOException {
        echo();
        Answers.send(response, answer);
    }

    private void echo() {
        if (showKey && key != null) {
            response.setHeader(route.keyHeader, Key.format(key));
        }
    }

    private void closeCaptured() {
        if (captured != null) {
            captured.close();
        }
    }

    private void tell(Consumer<Event> hook, String outcome, int attempt) {
        try {
            hook.accept(new Event(scope, key, attempt, outcome));
        } catch (RuntimeException e) {
            LOG.error("idempotency: a hook has failed, scope {}", scope, e);
        }
    }

    /** Without the key: it may be a secret. */
    private void log(Exception failure) {
        LOG.error("idempotency: {}, scope {}", failure, scope);
    }
}
