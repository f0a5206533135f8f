package idempotency.postgres;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.util.Set;

/** A connection whose transaction only its lender ends. After that it is of no use to the borrower. */
final class Lent implements AutoCloseable {
    private static final Set<String> NOT_YOURS = Set.of("commit", "rollback", "abort", "setAutoCommit");

    private final Connection lent;
    private volatile boolean returned;

    Lent(Connection connection) {
        lent = (Connection) Proxy.newProxyInstance(Lent.class.getClassLoader(), new Class<?>[] {Connection.class},
                (proxy, method, arguments) -> {
                    if (returned && !Set.of("close", "isClosed", "toString", "hashCode").contains(method.getName())) {
                        throw new SQLException("idempotency: the work has returned, and its transaction has ended");
                    }
                    boolean toSavepoint = arguments != null && arguments[0] instanceof Savepoint;
                    if (NOT_YOURS.contains(method.getName()) && !toSavepoint) {
                        throw new SQLException("idempotency: the holder of the claim ends its transaction");
                    }
                    if (method.getName().equals("close")) {
                        return null;
                    }
                    try {
                        return method.invoke(connection, arguments);
                    } catch (InvocationTargetException e) {
                        throw e.getCause();
                    }
                });
    }

    Connection connection() {
        return lent;
    }

    @Override
    public void close() {
        returned = true;
    }
}
