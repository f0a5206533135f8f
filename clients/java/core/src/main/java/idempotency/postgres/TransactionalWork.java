package idempotency.postgres;

import java.sql.Connection;

/**
 * SQL in a transaction that its caller ends: commit, rollback and setAutoCommit of the connection are errors,
 * and its close does nothing.
 */
@FunctionalInterface
public interface TransactionalWork<T, X extends Exception> {
    T run(Connection connection) throws X;
}
