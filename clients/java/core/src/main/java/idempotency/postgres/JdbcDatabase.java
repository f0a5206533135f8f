package idempotency.postgres;

import java.sql.Connection;
import java.sql.SQLException;
import javax.sql.DataSource;

/** JDBC transactions on connections from a pool. */
public final class JdbcDatabase implements Database {
    private static final int AS_IT_IS = -1;

    private final DataSource pool;
    private final int isolation;

    public JdbcDatabase(DataSource pool) {
        this(pool, AS_IT_IS);
    }

    /** With an isolation level, such as {@link Connection#TRANSACTION_SERIALIZABLE}. */
    public JdbcDatabase(DataSource pool, int isolation) {
        this.pool = pool;
        this.isolation = isolation;
    }

    @Override
    public Connection connect() throws SQLException {
        Connection connection = pool.getConnection();
        try {
            return prepared(connection, true);
        } catch (SQLException | RuntimeException e) {
            closeQuietly(connection);
            throw e;
        }
    }

    @Override
    public Transaction begin() throws SQLException {
        Connection connection = pool.getConnection();
        try {
            if (isolation != AS_IT_IS) {
                connection.setTransactionIsolation(isolation);
            }
            int networkTimeout = connection.getNetworkTimeout();
            return new Own(prepared(connection, false), networkTimeout);
        } catch (SQLException | RuntimeException e) {
            closeQuietly(connection);
            throw e;
        }
    }

    private static Connection prepared(Connection connection, boolean autocommit) throws SQLException {
        if (connection.getAutoCommit() != autocommit) {
            connection.setAutoCommit(autocommit);
        }
        return connection;
    }

    static void closeQuietly(Connection connection) {
        try {
            connection.close();
        } catch (SQLException | RuntimeException nothingIsLost) {
            return;
        }
    }

    /** Returns connections as they came, for a pool that does not reset them. */
    private record Own(Connection connection, int networkTimeout) implements Transaction {
        @Override
        public void commit() throws SQLException {
            try {
                connection.commit();
                reset();
            } finally {
                closeQuietly(connection);
            }
        }

        /** Restores autocommit only after success: it would commit the open transaction. */
        @Override
        public void rollback() throws SQLException {
            try {
                connection.rollback();
                reset();
            } finally {
                closeQuietly(connection);
            }
        }

        private void reset() {
            try {
                connection.setAutoCommit(true);
                connection.setNetworkTimeout(Runnable::run, networkTimeout);
            } catch (SQLException itIsBroken) {
                return; // since the transaction has ended; the pool will notice
            }
        }
    }
}
