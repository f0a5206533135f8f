package idempotency.postgres;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The suite's cases start example/worker; these are the ones that it cannot see. */
@Timeout(30)
class WorkerTest {
    private static final Duration LONG = Duration.ofHours(1);
    private static final Duration SHORT = Duration.ofMillis(20);

    private static TestDatabase database;
    private static Idempotency idempotency;
    private final String key = UUID.randomUUID().toString();
    private final String scope = "work/" + key;
    private final BlockingQueue<Throwable> reported = new LinkedBlockingQueue<>();

    @BeforeAll
    static void connect() {
        database = TestDatabase.create();
        database.run("SELECT idem_policy_set('work/*', store_request => true, retry_base => '0')");
        idempotency = Idempotency.on(database.shared()).build();
    }

    @AfterAll
    static void drop() {
        database.close();
    }

    private Worker.Builder options() {
        return idempotency.worker(scope).poll(SHORT).onError((error, work) -> reported.add(error));
    }

    /** A record that is due, by a first attempt that has failed. */
    private void queue(String... keys) {
        for (String each : keys.length == 0 ? new String[] {key} : keys) {
            String name = "scope => '" + scope + "', principal => 'acme'";
            database.run("SELECT FROM idem_begin('" + each + "', '{\"amount\": 5}', method => 'POST', path => '/hook', " + name + ");"
                    + "SELECT idem_fail('" + each + "', 'queued', retryable => true, retry_after => '0', " + name + ")");
        }
    }

    private String recorded(String column) {
        return database.value("SELECT " + column + " FROM idempotency.records WHERE key = '" + key + "'");
    }

    private void insert(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute("INSERT INTO effect VALUES ('" + key + "')");
        }
    }

    /** Runs until a handler calls {@code stop}. */
    private static Thread started(Worker worker) {
        Thread thread = new Thread(worker::run);
        thread.start();
        return thread;
    }

    @Test
    void optionsThatMakeNoSenseAreRefused() {
        Worker.Builder options = idempotency.worker(scope);
        assertThrows(IllegalArgumentException.class, () -> options.size(0));
        assertThrows(IllegalArgumentException.class, () -> options.size(1001));
        assertThrows(IllegalArgumentException.class, () -> options.lease(Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> options.poll(Duration.ofMillis(-1)));
        assertThrows(IllegalArgumentException.class, () -> options.channel(""));
        assertThrows(IllegalArgumentException.class, () -> options.channel("x".repeat(64)));
        assertThrows(NullPointerException.class, () -> idempotency.worker(null));
        assertThrows(NullPointerException.class, () -> options.leased(null));
    }

    @Test
    void workHasWhatTheRecordHas() throws Exception {
        queue();
        List<Object> seen = Collections.synchronizedList(new ArrayList<>());
        Worker[] worker = new Worker[1];
        worker[0] = options().transactional((work, connection) -> {
            seen.add(work.execution());
            seen.add(work.method() + " " + work.path() + " " + work.operation());
            seen.add(work.request(JsonNode.class).get("amount").asInt());
            seen.add(work.request(IdempotencyTest.Charge.class));
            seen.add(work.error());
            assertNull(work.recoveryPoint());
            assertNull(work.state(JsonNode.class));
            assertTrue(work.token() > 0);
            insert(connection);
            worker[0].stop();
            return null;
        });
        worker[0].run();
        assertEquals(List.of(new Execution(key, scope, "acme", 2), "POST /hook null", 5, new IdempotencyTest.Charge(5), "queued"), seen);
        assertEquals("completed", recorded("status"));
        assertNull(recorded("status_code"));
        assertEquals(1, database.effects(key));
        assertTrue(reported.isEmpty(), reported::toString);
    }

    @Test
    void stepsOfAnEarlierAttemptAreNotDoneAgain() {
        queue();
        AtomicInteger sent = new AtomicInteger();
        Worker[] worker = new Worker[1];
        worker[0] = options().leased((work, claim) -> {
            assertEquals("receipt", claim.step("sent", String.class, () -> {
                sent.incrementAndGet();
                return "receipt";
            }));
            if (work.execution().attempt() == 2) {
                throw new IllegalStateException("the first time");
            }
            assertEquals("sent", work.recoveryPoint());
            assertEquals(Map.of("sent", "receipt"), work.state(Map.class));
            worker[0].stop();
            return new Answer(200, Map.of(), new byte[] {'o', 'k'});
        });
        worker[0].run();
        assertEquals(1, sent.get());
        assertEquals("200", recorded("status_code"));
        assertEquals("the first time", reported.remove().getMessage());
    }

    @Test
    void aClaimThatIsLostIsReportedAndNothingStays() throws Exception {
        queue();
        Worker[] worker = new Worker[1];
        worker[0] = options().lease(Duration.ofSeconds(3)).transactional((work, connection) -> {
            insert(connection);
            database.run("SELECT idem_resolve('" + key + "', 'fail', scope => '" + scope + "', principal => 'acme')");
            assertThrows(InterruptedException.class, () -> new CountDownLatch(1).await());
            assertTrue(work.isToStop());
            worker[0].stop();
            return null;
        });
        worker[0].run();
        assertInstanceOf(LeaseLost.class, reported.remove());
        assertEquals(0, database.effects(key));
        assertEquals("failed", recorded("status"));
    }

    @Test
    void theTransactionIsTheWorkersToEnd() {
        queue();
        Worker[] worker = new Worker[1];
        worker[0] = options().transactional((work, connection) -> {
            worker[0].stop();
            insert(connection);
            connection.commit();
            return null;
        });
        worker[0].run();
        assertInstanceOf(SQLException.class, reported.remove());
        assertEquals(0, database.effects(key));
        assertEquals("retryable", recorded("status"));
    }

    @Test
    void anErrorThatIsHiddenIsAFailure() {
        queue();
        Worker[] worker = new Worker[1];
        worker[0] = options().transactional((work, connection) -> {
            insert(connection);
            try (Statement statement = connection.createStatement()) {
                statement.execute("SELECT 1/0");
            } catch (SQLException hidden) {
                worker[0].stop();
            }
            return null;
        });
        worker[0].run();
        assertEquals(0, database.effects(key));
        assertEquals("retryable", recorded("status"));
        assertEquals(1, reported.size());
    }

    @Test
    void abortTellsTheHandlers() throws Exception {
        queue(key, key + "-2");
        CountDownLatch working = new CountDownLatch(2);
        AtomicInteger told = new AtomicInteger();
        Worker worker = options().size(2).poll(LONG).leased((work, claim) -> {
            working.countDown();
            try {
                new CountDownLatch(1).await();
            } finally {
                told.incrementAndGet();
                assertTrue(work.isToStop());
                assertFalse(claim.isLost());
            }
            return null;
        });
        Thread thread = started(worker);
        assertTrue(working.await(60, TimeUnit.SECONDS));
        worker.abort();
        thread.join();
        assertEquals(2, told.get());
        assertEquals("retryable", recorded("status"), "the claim was held, so it has ended");
    }

    @Test
    void anInterruptionStopsAndASecondAborts() throws Exception {
        queue();
        CountDownLatch working = new CountDownLatch(1);
        Worker worker = options().leased((work, claim) -> {
            working.countDown();
            work.awaitStop();
            return null;
        });
        Thread thread = new Thread(() -> {
            worker.run();
            assertTrue(Thread.interrupted());
            reported.add(new IllegalStateException("it has returned"));
        });
        thread.start();
        assertTrue(working.await(60, TimeUnit.SECONDS));
        while (thread.isAlive()) {
            thread.interrupt();
            thread.join(50);
        }
        assertEquals("it has returned", reported.remove().getMessage());
        assertEquals("completed", recorded("status"));
    }

    @Test
    void stopIsIdempotentAndCloseWaits() throws Exception {
        queue();
        CountDownLatch working = new CountDownLatch(1);
        Worker worker = options().poll(LONG).transactional((work, connection) -> {
            working.countDown();
            insert(connection);
            return null;
        });
        worker.start();
        assertTrue(working.await(60, TimeUnit.SECONDS));
        worker.stop();
        worker.close();
        worker.close();
        assertEquals("completed", recorded("status"));
        assertThrows(IllegalStateException.class, worker::run);
        options().transactional((work, connection) -> null).close(); // which has not run
    }

    @Test
    void aWorkerThatWasStoppedClaimsNothing() {
        queue();
        Worker worker = options().transactional((work, connection) -> null);
        worker.stop();
        worker.run();
        assertEquals("retryable", recorded("status"));
    }

    @Test
    void aMistakeEndsItAtOnce() {
        Worker worker = idempotency.worker(" ").transactional((work, connection) -> null);
        IllegalStateException mistake = assertThrows(IllegalStateException.class, worker::run);
        assertEquals("22023", DatabaseFailure.sqlState(mistake));
        worker.close();
    }

    /** The session that has listened to {@code channel} with success. */
    private static String listener(String channel) throws InterruptedException {
        String pid;
        while ((pid = database.value("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'"
                + " AND query = 'LISTEN ' || quote_ident('" + channel + "')")) == null) {
            Thread.sleep(10);
        }
        return pid;
    }

    @Test
    void aNameOfAChannelIsQuotedAndItsConnectionIsMadeAgain() throws Exception {
        String channel = "a \"channel\" of " + key.substring(0, 8);
        BlockingQueue<String> done = new LinkedBlockingQueue<>();
        try (Worker worker = options().poll(LONG).channel(channel).transactional((work, connection) -> {
            done.add(work.execution().key());
            return null;
        })) {
            worker.start();
            for (int i = 0; i < 3; i++) {
                String session = listener(channel);
                queue(key + i);
                database.run("SELECT pg_notify('" + channel + "', '')");
                assertEquals(key + i, done.poll(60, TimeUnit.SECONDS));
                database.run("SELECT pg_terminate_backend(" + session + ", 20000)");
            }
        }
    }

    @Test
    void aHookThatFailsEndsNothing() {
        queue();
        Worker[] worker = new Worker[1];
        worker[0] = idempotency.worker(scope).poll(SHORT).onError((error, work) -> {
            throw new IllegalStateException("the hook");
        }).transactional((work, connection) -> {
            if (work.execution().attempt() < 4) {
                throw new AssertionError("an error that is no exception");
            }
            worker[0].stop();
            return null;
        });
        worker[0].run();
        assertEquals("completed", recorded("status"));
        assertEquals("4", recorded("attempt"));
    }
}
