package idempotency.postgres;

import idempotency.postgres.DatabaseFailure.At;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.IntToLongFunction;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;

/** LISTEN on a connection of its own, which is made again when it is lost. */
final class Listener implements AutoCloseable {
    private static final int CHECK_MILLIS = 10_000;

    private final Store store;
    private final String command;
    private final Runnable onNotice;
    private final Consumer<Exception> onFailure;
    private final IntToLongFunction pause;
    private final CountDownLatch closed = new CountDownLatch(1);
    private Connection connection;

    /** {@code onNotice} is called whenever there may be news; {@code pause} has nanoseconds, by the number of failures. */
    Listener(Store store, String channel, Runnable onNotice, Consumer<Exception> onFailure, IntToLongFunction pause) {
        this.store = store;
        this.command = "LISTEN \"" + channel.replace("\"", "\"\"") + '"';
        this.onNotice = onNotice;
        this.onFailure = onFailure;
        this.pause = pause;
        Threads.run(this::run);
    }

    private void run() {
        int failures = 0;
        while (!isClosed()) {
            try {
                begin();
                failures = 0;
                while (!isClosed()) {
                    await();
                }
            } catch (Exception e) {
                if (!isClosed()) {
                    onFailure.accept(e);
                }
            } finally {
                take(null); // not to be used by others: it listens
            }
            rest(pause.applyAsLong(failures++));
        }
    }

    private void begin() throws DatabaseFailure {
        Connection made = store.connect(store.timeoutMillis);
        take(made);
        store.within(made, store.timeoutMillis, each -> {
            try (Statement statement = each.createStatement()) {
                return statement.execute(command);
            }
        });
        onNotice.run(); // what was told before this is not told again
    }

    private void await() throws DatabaseFailure {
        try {
            PGNotification[] told = connection.unwrap(PGConnection.class).getNotifications(CHECK_MILLIS);
            if (told != null && told.length > 0) {
                onNotice.run();
                return;
            }
        } catch (SQLException e) {
            throw new DatabaseFailure(At.STATEMENT, e);
        }
        store.check(connection); // a dead network says nothing
    }

    private synchronized void take(Connection next) {
        if (connection != null) {
            Store.cut(connection);
        }
        connection = next;
        if (isClosed() && next != null) {
            Store.cut(next);
        }
    }

    private boolean isClosed() {
        return closed.getCount() == 0;
    }

    private void rest(long nanos) {
        try {
            closed.await(nanos, TimeUnit.NANOSECONDS);
        } catch (InterruptedException ofOurOwnThread) {
            closed.countDown();
        }
    }

    @Override
    public synchronized void close() {
        closed.countDown();
        if (connection != null) {
            Store.cut(connection);
        }
    }
}
