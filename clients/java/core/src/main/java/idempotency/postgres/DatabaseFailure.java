package idempotency.postgres;

import java.net.SocketTimeoutException;
import java.sql.SQLException;
import java.sql.SQLTransientConnectionException;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;
import java.util.function.Predicate;

/**
 * A failure of one of our statements, of a connection for it, or of the end of a transaction; and the meaning
 * of failures, those of handlers included. One of ours without an SQLSTATE means a lost connection. A handler's
 * does not, because the handler may have other connections.
 */
public final class DatabaseFailure extends Exception {
    enum At { CONNECT, STATEMENT, COMMIT, ROLLBACK }

    private final At at;

    DatabaseFailure(At at, Throwable cause) {
        super(cause);
        this.at = at;
    }

    /** The SQLSTATE of an error, also inside a framework's exception; "" if there is none. */
    public static String sqlState(Throwable failure) {
        String[] found = {""};
        anyCause(failure, cause -> {
            if (cause instanceof SQLException error && error.getSQLState() != null) {
                found[0] = error.getSQLState();
            }
            return !found[0].isEmpty();
        });
        return found[0];
    }

    static boolean anyCause(Throwable failure, Predicate<Throwable> test) {
        Set<Throwable> seen = Collections.newSetFromMap(new IdentityHashMap<>());
        for (Throwable cause = failure; cause != null && seen.add(cause); cause = cause.getCause()) {
            if (test.test(cause)) {
                return true;
            }
        }
        return false;
    }

    static boolean isConflict(Throwable failure) {
        String state = sqlState(failure);
        return state.equals("40001") || state.equals("40P01");
    }

    private static boolean isTimeout(Throwable failure) {
        // Of a statement, or of a pool that we have interrupted.
        return anyCause(failure, cause -> cause instanceof SocketTimeoutException || cause instanceof InterruptedException);
    }

    private static boolean isLostConnection(Throwable failure) {
        String state = sqlState(failure);
        if (state.isEmpty()) {
            return failure instanceof DatabaseFailure ours && anyCause(ours, SQLException.class::isInstance);
        }
        return state.startsWith("08") || Set.of("57P01", "57P02", "57P03", "57P05").contains(state);
    }

    /** It is not known whether the transaction was committed. */
    static boolean isInDoubt(Throwable failure) {
        return failure instanceof DatabaseFailure ours && ours.at == At.COMMIT && isLostConnection(failure);
    }

    /** A repetition from idem_begin on may succeed. After a COMMIT without an answer it finds the result. */
    static boolean isRetryable(Throwable failure) {
        if (failure instanceof DatabaseFailure ours && ours.at == At.CONNECT) {
            // A pool that gives up has waited long enough.
            return isLostConnection(ours) && !isTimeout(ours) && !anyCause(ours, SQLTransientConnectionException.class::isInstance);
        }
        return isConflict(failure) || isInDoubt(failure) || isLostConnection(failure) && !isTimeout(failure);
    }

    /** Every failure that means "not now": the database is away, full, or a standby. */
    public static boolean isUnavailable(Throwable failure) {
        String state = sqlState(failure);
        return anyCause(failure, DatabaseAway.class::isInstance)
                || failure instanceof DatabaseFailure ours && ours.at == At.CONNECT
                || isConflict(failure) || isLostConnection(failure) || state.startsWith("53")
                || Set.of("25006", "55P03", "57014").contains(state);
    }

    /** No repetition can succeed: a right, a function, the database or a value is wrong. */
    static boolean isMistake(Throwable failure) {
        String state = sqlState(failure);
        return Set.of("0A", "22", "28", "3D", "3F", "42").contains(state.substring(0, Math.min(2, state.length())));
    }

    /** The claim has ended, or another worker has it. */
    static boolean isLost(Throwable failure) {
        String state = sqlState(failure);
        return failure instanceof LeaseLost || state.equals("ID404") || state.equals("ID409");
    }
}
