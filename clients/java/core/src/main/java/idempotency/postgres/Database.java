package idempotency.postgres;

import java.sql.Connection;
import java.sql.SQLException;

/** Where transactions and connections come from: {@link JdbcDatabase}, or a framework's. */
public interface Database {
    /** Begins a transaction, which may be bound to this thread. */
    Transaction begin() throws SQLException;

    /** A connection in autocommit, for one statement. */
    Connection connect() throws SQLException;

    /** Whatever becomes of commit or rollback, the connection is given back. */
    interface Transaction {
        Connection connection();

        void commit() throws SQLException;

        void rollback() throws SQLException;

        /** Whether the work has asked for it, or an error of its own. */
        default boolean isRollbackOnly() {
            return false;
        }
    }
}
