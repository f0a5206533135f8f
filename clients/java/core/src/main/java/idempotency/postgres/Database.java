package idempotency.postgres;

import java.sql.Connection;
import java.sql.SQLException;

/** The source of transactions and connections: {@link JdbcDatabase}, or a framework's. */
public interface Database {
    /** Begins a transaction, which may be bound to this thread. */
    Transaction begin() throws SQLException;

    /** A connection in autocommit, for one statement. */
    Connection connect() throws SQLException;

    /** Returns the connection even if commit or rollback fails. */
    interface Transaction {
        Connection connection();

        void commit() throws SQLException;

        void rollback() throws SQLException;

        /** Whether the work, or an error in it, has asked for a rollback. */
        default boolean isRollbackOnly() {
            return false;
        }
    }
}
