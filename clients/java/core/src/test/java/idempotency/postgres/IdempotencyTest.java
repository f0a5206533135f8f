package idempotency.postgres;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import javax.sql.DataSource;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.postgresql.ds.PGSimpleDataSource;

@Timeout(60)
class IdempotencyTest {
    private static TestDatabase database;
    private static Idempotency idempotency;
    private final String key = UUID.randomUUID().toString();

    @BeforeAll
    static void connect() {
        database = TestDatabase.create();
        idempotency = Idempotency.on(database.shared()).build();
    }

    @AfterAll
    static void drop() {
        database.close();
    }

    record Charge(int amount) {}

    private Request request() {
        return Request.of(key, "pay", "acme").content(Map.of("amount", 5));
    }

    private void insert(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute("INSERT INTO effect VALUES ('" + key + "')");
        }
    }

    private Charge pay(Connection connection) throws SQLException {
        insert(connection);
        return new Charge(5);
    }

    private String recorded() {
        return database.value("SELECT status FROM idempotency.records WHERE key = '" + key + "'");
    }

    @Test
    void aRepeatGetsTheFirstResult() throws SQLException {
        assertEquals(new Charge(5), idempotency.transactionally(request(), Charge.class, this::pay));
        assertEquals(new Charge(5), idempotency.transactionally(request(), Charge.class, connection -> new Charge(6)));
        assertEquals(1, database.effects(key));
    }

    @Test
    void anotherRequestIsRefused() throws SQLException {
        idempotency.transactionally(request(), Charge.class, this::pay);
        Request other = Request.of(key, "pay", "acme").content(Map.of("amount", 6));
        Refused refused = assertThrows(Refused.class, () -> idempotency.transactionally(other, Charge.class, this::pay));
        assertEquals(Outcome.MISMATCH, refused.outcome());
        assertEquals(1, database.effects(key));
    }

    @Test
    void whatThrowsHasNotHappened() throws SQLException {
        assertThrows(IllegalStateException.class, () -> idempotency.transactionally(request(), Charge.class, connection -> {
            insert(connection);
            throw new IllegalStateException("no");
        }));
        assertEquals(0, database.effects(key));
        idempotency.transactionally(request(), Charge.class, this::pay);
        assertEquals(1, database.effects(key));
    }

    @Test
    void conflictsAreRepeated() throws SQLException {
        AtomicInteger runs = new AtomicInteger();
        idempotency.transactionally(request(), Charge.class, connection -> {
            insert(connection);
            if (runs.incrementAndGet() < 3) {
                throw new RuntimeException(new SQLException("conflict", "40001"));
            }
            return new Charge(5);
        });
        assertEquals(3, runs.get());
        assertEquals(1, database.effects(key));
    }

    @Test
    void aLostConnectionIsRepeated() throws SQLException {
        AtomicInteger runs = new AtomicInteger();
        idempotency.transactionally(request(), Charge.class, connection -> {
            if (runs.incrementAndGet() == 1) {
                try (Statement statement = connection.createStatement()) {
                    statement.execute("SELECT pg_terminate_backend(pg_backend_pid())");
                }
            }
            return pay(connection);
        });
        assertEquals(2, runs.get());
        assertEquals(1, database.effects(key));
    }

    @Test
    void aLostConnectionThatWorkHidesIsRepeated() throws SQLException {
        AtomicInteger runs = new AtomicInteger();
        idempotency.transactionally(request(), Charge.class, connection -> {
            if (runs.incrementAndGet() == 1) {
                try (Statement statement = connection.createStatement()) {
                    statement.execute("SELECT pg_terminate_backend(pg_backend_pid())");
                } catch (SQLException hidden) {
                    return new Charge(0);
                }
            }
            return pay(connection);
        });
        assertEquals(2, runs.get());
    }

    @Test
    void anErrorThatWorkHidesIsNoSuccess() {
        assertThrows(IllegalStateException.class, () -> idempotency.transactionally(request(), Charge.class, connection -> {
            try (Statement statement = connection.createStatement()) {
                statement.execute("SELECT 1/0");
            } catch (SQLException hidden) {
                return new Charge(0);
            }
            return new Charge(1);
        }));
        assertEquals(null, recorded());
    }

    @Test
    void workCantEndItsTransaction() {
        assertThrows(SQLException.class, () -> idempotency.transactionally(request(), Charge.class, connection -> {
            insert(connection);
            connection.commit();
            return new Charge(1);
        }));
        assertEquals(0, database.effects(key));
    }

    @Test
    void theConnectionIsGivenBackAsItCame() throws SQLException {
        try (var pool = database.pool()) {
            pool.setMaximumPoolSize(1);
            Idempotency.on(pool).build().transactionally(request(), Charge.class, this::pay);
            try (Connection connection = pool.getConnection()) {
                assertTrue(connection.getAutoCommit());
                assertEquals(0, connection.getNetworkTimeout());
            }
        }
    }

    @Test
    void stepsAreDoneOnce() throws Exception {
        AtomicInteger sent = new AtomicInteger();
        assertThrows(IllegalStateException.class, () -> idempotency.leased(request(), Charge.class, claim -> {
            claim.step("sent", Integer.class, sent::incrementAndGet);
            claim.stepInTransaction("booked", Void.class, connection -> {
                insert(connection);
                return null;
            });
            throw new IllegalStateException("no");
        }));
        assertEquals("retryable", recorded());
        database.run("SELECT idem_resolve('" + key + "', 'release', scope => 'pay', principal => 'acme')");
        Charge charge = idempotency.leased(request(), Charge.class, claim -> {
            assertEquals("booked", claim.recoveryPoint());
            assertEquals(2, claim.execution().attempt());
            int first = claim.step("sent", Integer.class, sent::incrementAndGet);
            claim.stepInTransaction("booked", Void.class, connection -> {
                insert(connection);
                return null;
            });
            return new Charge(first);
        });
        assertEquals(new Charge(1), charge);
        assertEquals(1, sent.get());
        assertEquals(1, database.effects(key));
        assertEquals(new Charge(1), idempotency.leased(request(), Charge.class, claim -> new Charge(9)));
    }

    @Test
    void stepsThatAreDoneAtOnceAreAllRemembered() throws Exception {
        List<String> names = List.of("a", "b", "c", "d", "e", "f");
        CyclicBarrier meet = new CyclicBarrier(names.size());
        ExecutorService threads = Executors.newFixedThreadPool(names.size());
        try {
            assertThrows(IllegalStateException.class, () -> idempotency.leased(request(), Charge.class, claim -> {
                List<Future<Integer>> results = new ArrayList<>();
                for (String name : names) {
                    Callable<Integer> step = name.compareTo("d") < 0 ? () -> claim.step(name, Integer.class, () -> meet.await() * 0 + 7)
                            : () -> claim.stepInTransaction(name, Integer.class, connection -> meet.await() * 0 + 8);
                    results.add(threads.submit(step));
                }
                for (Future<Integer> result : results) {
                    result.get();
                }
                throw new IllegalStateException("after the steps");
            }));
        } finally {
            threads.shutdownNow();
        }
        database.run("SELECT idem_resolve('" + key + "', 'release', scope => 'pay', principal => 'acme')");
        List<Integer> known = new ArrayList<>();
        idempotency.leased(request(), Charge.class, claim -> {
            for (String name : names) {
                known.add(claim.step(name, Integer.class, () -> 0));
            }
            return new Charge(1);
        });
        assertEquals(List.of(7, 7, 7, 8, 8, 8), known);
    }

    @Test
    void aLostClaimIsToldAndNothingIsStored() {
        AtomicInteger interrupted = new AtomicInteger();
        assertThrows(LeaseLost.class, () -> idempotency.leased(request().lease(Duration.ofSeconds(1)), Charge.class, claim -> {
            database.run("SELECT idem_resolve('" + key + "', 'complete', scope => 'pay', principal => 'acme', body => '{\"amount\":7}')");
            try {
                Thread.sleep(50_000);
            } catch (InterruptedException e) {
                interrupted.incrementAndGet();
            }
            assertTrue(claim.isLost());
            assertThrows(LeaseLost.class, () -> claim.step("more", Integer.class, () -> 1));
            return new Charge(8);
        }));
        assertEquals(1, interrupted.get());
        assertFalse(Thread.currentThread().isInterrupted());
        assertEquals(new Charge(7), idempotency.leased(request(), Charge.class, claim -> new Charge(9)));
    }

    @Test
    void heartbeatsKeepAClaim() {
        Charge charge = idempotency.leased(request().lease(Duration.ofSeconds(1)), Charge.class, claim -> {
            String begun = "SELECT created_at + interval '1.5 s' < clock_timestamp() FROM idempotency.records WHERE key = '" + key + "'";
            while (database.value(begun).equals("f")) {
                Thread.onSpinWait();
            }
            return new Charge(5);
        });
        assertEquals(new Charge(5), charge);
        assertEquals("completed", recorded());
    }

    @Test
    void aMessageIsAppliedOnce() throws SQLException {
        assertTrue(idempotency.once(key, "inbox", "", connection -> {
            insert(connection);
            return null;
        }));
        assertFalse(idempotency.once(key, "inbox", "", connection -> {
            insert(connection);
            return null;
        }));
        assertEquals(1, database.effects(key));
    }

    @Test
    void aMessageThatFailsIsTheFirstAgain() {
        assertThrows(IllegalStateException.class, () -> idempotency.once(key, "inbox", "", connection -> {
            throw new IllegalStateException("no");
        }));
        assertTrue(idempotency.once(key, "inbox", "", connection -> null));
    }

    /** COMMIT of a transaction in which a statement has failed rolls it back; the driver looks at what it answers. */
    @Test
    void aMessageWhoseErrorIsHiddenIsNotApplied() throws SQLException {
        AtomicInteger runs = new AtomicInteger();
        assertThrows(IllegalStateException.class, () -> idempotency.once(key, "inbox", "", connection -> {
            runs.incrementAndGet();
            try (Statement statement = connection.createStatement()) {
                assertThrows(SQLException.class, () -> statement.execute("SELECT 1/0"));
            }
            return null;
        }));
        assertEquals(1, runs.get());
        assertTrue(idempotency.once(key, "inbox", "", connection -> null));
    }

    /** Whatever fails between the pool and the transaction, the connection goes back. */
    @Test
    void aConnectionThatIsOfNoUseIsGivenBack() throws SQLException {
        for (String broken : new String[] {"getNetworkTimeout", "getAutoCommit", "setAutoCommit", "setTransactionIsolation"}) {
            AtomicInteger lent = new AtomicInteger();
            DataSource pool = instance(DataSource.class, (proxy, method, arguments) -> {
                lent.incrementAndGet();
                return instance(Connection.class, (connection, called, values) -> {
                    if (called.getName().equals(broken)) {
                        throw new SQLException("broken", "08006");
                    }
                    if (called.getName().equals("close")) {
                        lent.decrementAndGet();
                    }
                    return called.getReturnType() == boolean.class ? (Object) true : called.getReturnType() == int.class ? 0 : null;
                });
            });
            assertThrows(SQLException.class, () -> new JdbcDatabase(pool, Connection.TRANSACTION_SERIALIZABLE).begin(), broken);
            assertEquals(0, lent.get(), broken);
        }
    }

    private static <T> T instance(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    @Test
    void withoutADatabaseNothingIsDone() {
        PGSimpleDataSource nobody = new PGSimpleDataSource();
        nobody.setURL("jdbc:postgresql://127.0.0.1:1/nobody");
        AtomicInteger runs = new AtomicInteger();
        assertThrows(DatabaseAway.class, () -> Idempotency.on(nobody).build().transactionally(request(), Charge.class, connection -> {
            runs.incrementAndGet();
            return new Charge(1);
        }));
        assertEquals(0, runs.get());
    }

    @Test
    void keysForOthersAreAFunctionOfOurs() {
        Execution execution = new Execution("k", "s", "p", 1);
        assertEquals(execution.derived("a"), new Execution("k", "s", "p", 2).derived("a"));
        assertNotEquals(execution.derived("a"), execution.derived("b"));
        assertNotEquals(new Execution("k", "s:", "p", 1).derived("a"), new Execution("k", "s", ":p", 1).derived("a"));
        assertEquals(64, execution.derived("a").length());
    }
}
