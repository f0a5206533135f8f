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
        database.run("SELECT idem_policy_set('unsure', on_lease_expiry => 'unknown', unknown_retry_after => '1 minute')");
        database.run("SELECT idem_policy_set('window', retention => '1 day')");
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
        database.run("SELECT idem_resolve('" + key + "', 'release', scope => 'pay', principal => 'acme', even_if_running => true)");
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
        database.run("SELECT idem_resolve('" + key + "', 'release', scope => 'pay', principal => 'acme', even_if_running => true)");
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
        assertThrows(LeaseLost.class, () -> idempotency.leased(request().lease(Duration.ofSeconds(3)), Charge.class, claim -> {
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
        Charge charge = idempotency.leased(request().lease(Duration.ofSeconds(4)), Charge.class, claim -> {
            String kept = "SELECT lease_until > created_at + interval '4.5 s' FROM idempotency.records WHERE key = '" + key + "'";
            while (database.value(kept).equals("f")) {
                Thread.onSpinWait();
            }
            return new Charge(5);
        });
        assertEquals(new Charge(5), charge);
        assertEquals("completed", recorded());
    }

    private Request unsure() {
        return Request.of(key, "unsure", "acme");
    }

    private void assertUnknown() {
        Refused refused = assertThrows(Refused.class, () -> idempotency.leased(unsure(), Charge.class, claim -> new Charge(9)));
        assertEquals(Outcome.UNKNOWN, refused.outcome());
        assertEquals(Duration.ofMinutes(1), refused.retryAfter().orElseThrow());
        assertEquals("unknown", recorded());
    }

    @Test
    void aFailureOfLeasedWorkIsUnknownWhereThePolicySaysSo() {
        assertThrows(IllegalStateException.class, () -> idempotency.leased(unsure(), Charge.class, claim -> {
            throw new IllegalStateException("no answer");
        }));
        assertUnknown();
    }

    @Test
    void workThatHasHadNoEffectIsExecutedAgain() {
        for (Exception failure : List.of(new NothingHappenedException("refused"),
                new RuntimeException(new NothingHappenedException("refused", new SQLException("no"))))) {
            assertThrows(RuntimeException.class, () -> idempotency.leased(unsure(), Charge.class, claim -> {
                throw failure;
            }));
            assertEquals("retryable", recorded());
            assertEquals("refused", database.value("SELECT error FROM idempotency.records WHERE key = '" + key + "'"));
            database.run("SELECT idem_resolve('" + key + "', 'release', scope => 'unsure', principal => 'acme', even_if_running => true)");
        }
        assertEquals(new Charge(5), idempotency.leased(unsure(), Charge.class, claim -> new Charge(5)));
    }

    @Test
    void aSessionThatTimesOutInItsTransactionIsNoReasonToRunAgain() {
        AtomicInteger runs = new AtomicInteger();
        assertThrows(IllegalStateException.class, () -> idempotency.transactionally(request(), Charge.class, connection -> {
            runs.incrementAndGet();
            try (Statement statement = connection.createStatement()) {
                statement.execute("SET LOCAL idle_in_transaction_session_timeout = 100");
            }
            Thread.sleep(600);
            return new Charge(5);
        }));
        assertEquals(1, runs.get());
        assertEquals(0, database.effects(key));
    }

    @Test
    void lateWorkHasFailedWhateverItDoes() throws SQLException {
        for (boolean throwing : new boolean[] {false, true}) {
            assertThrows(HandlerLate.class, () -> idempotency.transactionally(request().handlerTimeout(Duration.ofMillis(100)), Charge.class,
                    connection -> {
                        insert(connection);
                        assertThrows(InterruptedException.class, () -> Thread.sleep(60_000));
                        if (throwing) {
                            throw new SQLException("of no account", "40001");
                        }
                        return new Charge(5);
                    }));
            assertFalse(Thread.interrupted());
        }
        assertEquals(0, database.effects(key));
        idempotency.transactionally(request(), Charge.class, this::pay);
    }

    @Test
    void lateWorkBeginsNoStep() {
        assertThrows(HandlerLate.class, () -> idempotency.leased(unsure().handlerTimeout(Duration.ofMillis(100)), Charge.class, claim -> {
            assertThrows(InterruptedException.class, () -> Thread.sleep(60_000));
            assertThrows(IllegalStateException.class, () -> claim.step("more", Integer.class, () -> 1));
            throw new NothingHappenedException("of no account");
        }));
        assertUnknown();
    }

    @Test
    void workCanSayThatItsOutcomeIsUnknown() {
        AtomicInteger told = new AtomicInteger();
        Idempotency.LeasedHandler work = claim -> {
            claim.unknown("no answer within 30 s", "ch_1");
            assertThrows(IllegalStateException.class, () -> claim.unknown("again", null));
            assertThrows(IllegalStateException.class, () -> claim.step("more", Integer.class, () -> 1));
            String ended = "SELECT created_at + interval '1.5 s' < clock_timestamp() FROM idempotency.records WHERE key = '" + key + "'";
            while (database.value(ended).equals("f")) {
                Thread.onSpinWait();
            }
            return new Result.Judged(Answer.omitted(502), null);
        };
        Result result = idempotency.runLeased(unsure().lease(Duration.ofSeconds(1)), claimed -> told.incrementAndGet(), work);
        assertEquals(502, result.answer().status());
        assertFalse(result.lost());
        assertEquals(0, told.get());
        assertEquals("no answer within 30 s|ch_1",
                database.value("SELECT error || '|' || reference FROM idem_get('" + key + "', 'unsure', 'acme')"));
        assertUnknown();
    }

    @Test
    void anUnknownOutcomeStaysUnknownWhateverIsThrown() {
        assertThrows(NothingHappenedException.class, () -> idempotency.leased(unsure(), Charge.class, claim -> {
            claim.unknown("no answer", null);
            throw new NothingHappenedException("a contradiction");
        }));
        assertUnknown();
    }

    @Test
    void aClaimThatIsLostHasNoUnknownOutcome() {
        assertThrows(LeaseLost.class, () -> idempotency.leased(unsure(), Charge.class, claim -> {
            database.run("SELECT idem_resolve('" + key + "', 'complete', scope => 'unsure', principal => 'acme', body => '{\"amount\":7}')");
            claim.unknown("no answer", null);
            return new Charge(8);
        }));
        assertEquals("completed", recorded());
    }

    @Test
    void keysAreDerivedFromTheContentForAWindow() throws SQLException {
        Request derived = Request.derived(Duration.ofHours(1), "window", "acme").content(Map.of("item", key));
        Request other = derived.content(Map.of("item", "another " + key));
        assertEquals(new Charge(5), idempotency.transactionally(derived, Charge.class, this::pay));
        assertEquals(new Charge(5), idempotency.leased(derived, Charge.class, claim -> new Charge(6)));
        assertEquals(new Charge(6), idempotency.leased(other, Charge.class, claim -> {
            assertEquals(64, claim.execution().key().length());
            return claim.step("done", Charge.class, () -> new Charge(6));
        }));
        database.run("UPDATE idempotency.record SET created_at = created_at - age, claimed_at = claimed_at - age,"
                + " finished_at = finished_at - age, expires_at = expires_at - age, retained_until = retained_until - age"
                + " FROM (VALUES (interval '1 hour')) AS v (age) WHERE scope = 'window'");
        assertEquals(new Charge(7), idempotency.transactionally(derived, Charge.class, connection -> new Charge(7)));
    }

    @Test
    void aDerivedKeyCountsForAllOfItsWindow() throws SQLException {
        Request derived = Request.derived(Duration.ofDays(7), "week", "acme").content(key);
        idempotency.transactionally(derived, Charge.class, this::pay);
        assertEquals("t", database.value("SELECT expires_at > now() + interval '6 days' FROM idempotency.records WHERE scope = 'week'"));
    }

    @Test
    void contentThatJsonbRefusesIsComparedAsBytes() throws SQLException {
        for (Object odd : List.of("a\0b", new java.math.BigDecimal("1E+200000"))) {
            Request request = Request.of(key + odd.hashCode(), "pay", "acme").content(List.of(odd));
            assertEquals(new Charge(5), idempotency.transactionally(request, Charge.class, connection -> new Charge(5)));
            assertEquals(new Charge(5), idempotency.leased(request, Charge.class, claim -> new Charge(6)));
            assertEquals(new Charge(7), idempotency.leased(
                    Request.of(key + "-2" + odd.hashCode(), "pay", "acme").content(List.of(odd)), Charge.class, claim -> new Charge(7)));
            Refused refused = assertThrows(Refused.class, () -> idempotency.transactionally(request.content(List.of(odd, 1)),
                    Charge.class, connection -> new Charge(8)));
            assertEquals(Outcome.MISMATCH, refused.outcome());
        }
    }

    @Test
    void unprotectedWorkDoesItsStepsWithoutADatabase() {
        Claim claim = Idempotency.on(nowhere()).build().claimOfNobody(request());
        assertEquals(7, claim.<Integer, RuntimeException>step("done", Integer.class, () -> 7));
        assertEquals(7, claim.<Integer, RuntimeException>step("done", Integer.class, () -> 8));
        claim.unknown("no answer", null);
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

    private static DataSource nowhere() {
        PGSimpleDataSource nowhere = new PGSimpleDataSource();
        nowhere.setURL("jdbc:postgresql://127.0.0.1:1/nowhere");
        return nowhere;
    }

    @Test
    void withoutADatabaseNothingIsDone() {
        AtomicInteger runs = new AtomicInteger();
        assertThrows(DatabaseAway.class, () -> Idempotency.on(nowhere()).build().transactionally(request(), Charge.class, connection -> {
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
