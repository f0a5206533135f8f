package idempotency.postgres;

import idempotency.postgres.DatabaseFailure.At;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.concurrent.Callable;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Runs our statements, in a transaction or alone, each with a time limit: only that detects a database whose
 * network swallows bytes. The driver closes a connection that exceeds the limit.
 */
final class Store {
    final Json json;
    final String holder;
    final long timeoutMillis;
    private final Database database;

    Store(Database database, Json json, String holder, long timeoutMillis) {
        this.database = database;
        this.json = json;
        this.holder = holder;
        this.timeoutMillis = timeoutMillis;
    }

    interface Statement<T> {
        T run(Connection connection) throws SQLException;
    }

    /** The work of a transaction, and whether to commit it. */
    record Ended<T>(T value, boolean commit) {}

    interface Body<T> {
        Ended<T> run(Database.Transaction transaction) throws Exception;
    }

    /** A statement that commits alone. */
    <T> T alone(Statement<T> statement) throws DatabaseFailure {
        return alone(timeoutMillis, statement);
    }

    <T> T alone(long millis, Statement<T> statement) throws DatabaseFailure {
        Connection connection = connect(millis);
        try {
            return within(connection, millis, statement);
        } finally {
            JdbcDatabase.closeQuietly(connection);
        }
    }

    Connection connect(long millis) throws DatabaseFailure {
        try (Interruption late = Interruption.after(millis)) {
            return database.connect();
        } catch (SQLException | RuntimeException e) {
            throw new DatabaseFailure(At.CONNECT, e);
        }
    }

    /** Runs one of our statements in a transaction, and restores the connection's settings. 0 means no limit. */
    <T> T within(Connection connection, long millis, Statement<T> statement) throws DatabaseFailure {
        try {
            int before = connection.getNetworkTimeout();
            connection.setNetworkTimeout(Runnable::run, (int) Math.min(millis, Integer.MAX_VALUE));
            T result = statement.run(connection);
            connection.setNetworkTimeout(Runnable::run, before);
            return result;
        } catch (SQLException e) {
            throw new DatabaseFailure(At.STATEMENT, e);
        }
    }

    /**
     * Throws if a statement of the transaction has failed and the work has hidden that: PostgreSQL turns its
     * COMMIT into a ROLLBACK, which the driver does not report. For transactions that do not end with a
     * statement of ours.
     */
    void check(Connection connection) throws DatabaseFailure {
        within(connection, timeoutMillis, each -> {
            try (java.sql.Statement statement = each.createStatement()) {
                return statement.execute("SELECT 1");
            }
        });
    }

    /**
     * A transaction that cannot be rolled back has lost its connection, even if the work hid that: its failure
     * says so, and a repetition may succeed.
     */
    <T> T inTransaction(Body<T> body) throws Exception {
        Database.Transaction transaction = begin();
        Ended<T> ended;
        try {
            ended = body.run(transaction);
        } catch (Throwable failure) {
            DatabaseFailure broken = rollback(transaction);
            if (broken != null && DatabaseFailure.sqlState(failure).isEmpty() && failure instanceof Exception
                    && !(failure instanceof HandlerLate)) {
                broken.addSuppressed(failure);
                throw broken;
            }
            throw failure;
        }
        if (ended.commit()) {
            commit(transaction);
        } else {
            DatabaseFailure broken = rollback(transaction);
            if (broken != null) {
                throw broken;
            }
        }
        return ended.value();
    }

    private Database.Transaction begin() throws DatabaseFailure {
        try (Interruption late = Interruption.after(timeoutMillis)) {
            return database.begin();
        } catch (IllegalStateException misused) {
            throw misused;
        } catch (SQLException | RuntimeException e) {
            throw new DatabaseFailure(At.CONNECT, e);
        }
    }

    private void commit(Database.Transaction transaction) throws DatabaseFailure {
        try {
            limit(transaction);
        } catch (SQLException itIsBroken) {
            rollback(transaction); // may fail: the connection must still be returned
            throw new DatabaseFailure(At.STATEMENT, itIsBroken);
        }
        try {
            transaction.commit();
        } catch (SQLException | RuntimeException e) {
            throw new DatabaseFailure(At.COMMIT, e);
        }
    }

    private DatabaseFailure rollback(Database.Transaction transaction) {
        try {
            limit(transaction);
        } catch (SQLException itIsBroken) {
            // The connection must still be returned.
        }
        try {
            transaction.rollback();
            return null;
        } catch (SQLException | RuntimeException e) {
            return new DatabaseFailure(At.ROLLBACK, e);
        }
    }

    /** Ends a connection whose thread does not return: the server rolls back, and the pool replaces it. */
    static void cut(Connection connection) {
        try {
            connection.abort(Runnable::run);
        } catch (SQLException | RuntimeException itIsBroken) {
            // It is given back all the same.
        }
        JdbcDatabase.closeQuietly(connection);
    }

    private void limit(Database.Transaction transaction) throws SQLException {
        transaction.connection().setNetworkTimeout(Runnable::run, (int) timeoutMillis);
    }

    /** Repeats after failures that a repetition may cure. */
    static <T> T again(int attempts, Callable<T> call) throws Exception {
        for (int attempt = 1;; attempt++) {
            try {
                return call.call();
            } catch (Exception e) {
                if (attempt >= attempts || !DatabaseFailure.isRetryable(e)) {
                    throw e;
                }
                pause(attempt);
            }
        }
    }

    static void pause(int attempt) throws InterruptedException {
        long longest = Math.min(10L << Math.min(attempt, 10), 1000);
        Thread.sleep(longest / 2 + ThreadLocalRandom.current().nextLong(longest / 2));
    }
}
