package idempotency.postgres.spring;

import idempotency.postgres.Database;
import java.sql.Connection;
import java.sql.SQLException;
import javax.sql.DataSource;
import org.springframework.jdbc.datasource.DataSourceUtils;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.TransactionDefinition;
import org.springframework.transaction.TransactionStatus;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/** Spring's transactions, in which JdbcTemplate and JPA of the same thread take part. */
public final class SpringDatabase implements Database {
    private final DataSource pool;
    private final PlatformTransactionManager transactions;
    private final TransactionDefinition definition;

    /** The manager is of this pool: a DataSourceTransactionManager, or JPA's on it. */
    public SpringDatabase(DataSource pool, PlatformTransactionManager transactions, TransactionDefinition definition) {
        this.pool = pool;
        this.transactions = transactions;
        this.definition = definition;
    }

    @Override
    public Connection connect() throws SQLException {
        Connection connection = pool.getConnection();
        try {
            if (!connection.getAutoCommit()) {
                connection.setAutoCommit(true);
            }
            return connection;
        } catch (SQLException e) {
            connection.close();
            throw e;
        }
    }

    @Override
    public Transaction begin() throws SQLException {
        if (TransactionSynchronizationManager.isActualTransactionActive()) {
            throw new IllegalStateException("idempotency: a claim begins its own transaction, and there is one already");
        }
        TransactionStatus status = transactions.getTransaction(definition);
        try {
            Connection connection = DataSourceUtils.doGetConnection(pool);
            if (!DataSourceUtils.isConnectionTransactional(connection, pool)) {
                DataSourceUtils.doReleaseConnection(connection, pool);
                throw new IllegalStateException("idempotency: the transaction manager is not of this DataSource");
            }
            keepNetworkTimeout(connection);
            return new Springs(connection, status, transactions);
        } catch (SQLException | RuntimeException e) {
            transactions.rollback(status);
            throw e;
        }
    }

    /** Returns it as it came, for a pool that does not reset connections. */
    private static void keepNetworkTimeout(Connection connection) throws SQLException {
        int before = connection.getNetworkTimeout();
        TransactionSynchronizationManager.registerSynchronization(new TransactionSynchronization() {
            @Override
            public void afterCompletion(int outcome) {
                try {
                    connection.setNetworkTimeout(Runnable::run, before);
                } catch (SQLException itIsBroken) {
                    return;
                }
            }
        });
    }

    private record Springs(Connection connection, TransactionStatus status, PlatformTransactionManager transactions)
            implements Transaction {
        @Override
        public void commit() {
            transactions.commit(status);
        }

        @Override
        public void rollback() {
            if (!status.isCompleted()) {
                transactions.rollback(status);
            }
        }

        @Override
        public boolean isRollbackOnly() {
            return status.isRollbackOnly();
        }
    }
}
