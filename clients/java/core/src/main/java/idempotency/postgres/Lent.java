package idempotency.postgres;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.util.Set;

/** A connection whose transaction only its lender ends. */
final class Lent {
    private static final Set<String> NOT_YOURS = Set.of("commit", "rollback", "abort", "setAutoCommit");

    private Lent() {}

    static Connection of(Connection connection) {
        return (Connection) Proxy.newProxyInstance(Lent.class.getClassLoader(), new Class<?>[] {Connection.class},
                (proxy, method, arguments) -> {
                    boolean toSavepoint = arguments != null && arguments[0] instanceof Savepoint;
                    if (NOT_YOURS.contains(method.getName()) && !toSavepoint) {
                        throw new SQLException("idempotency: whoever holds the claim ends its transaction");
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
}
