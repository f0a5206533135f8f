package idempotency.postgres.servlet;

import idempotency.postgres.Claim;
import idempotency.postgres.Execution;
import jakarta.servlet.ServletRequest;
import java.sql.Connection;

/**
 * The claim of a handler's request.
 *
 * @param connection of the transaction that holds the claim; null on a leased route, and on one that runs
 *     unprotected because the database is away
 * @param claim of a leased route, else null
 */
public record Current(Execution execution, Connection connection, Claim claim) {
    private static final String ATTRIBUTE = Current.class.getName();
    private static final String FAILURE = ATTRIBUTE + ".failure";

    /** Null if the request is not protected. */
    public static Current of(ServletRequest request) {
        return (Current) request.getAttribute(ATTRIBUTE);
    }

    /**
     * Reports that the handler has failed although it answers: its work is rolled back, and its answer not
     * kept. After a failure to serialize, a deadlock or the loss of its transaction's connection it is run
     * again.
     */
    public static void fail(ServletRequest request, Exception failure) {
        request.setAttribute(FAILURE, failure);
    }

    /**
     * Reports that the handler has refused the request by an exception that has a status of its own. Its work is
     * rolled back. A 4xx is stored and replayed, if the route keeps its status.
     */
    public static void refuse(ServletRequest request, Exception refusal) {
        request.setAttribute(FAILURE, new Raised(refusal));
    }

    static Exception failure(ServletRequest request) {
        return (Exception) request.getAttribute(FAILURE);
    }

    void put(ServletRequest request) {
        request.setAttribute(ATTRIBUTE, this);
        request.removeAttribute(FAILURE);
    }

    static void remove(ServletRequest request) {
        request.removeAttribute(ATTRIBUTE);
        request.removeAttribute(FAILURE);
    }
}
