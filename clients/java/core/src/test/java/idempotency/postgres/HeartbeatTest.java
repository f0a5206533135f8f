package idempotency.postgres;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.SQLException;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class HeartbeatTest {
    private static final Duration LONG = Duration.ofHours(1);
    private final CountDownLatch told = new CountDownLatch(1);

    private Heartbeat heartbeat(Duration lease, Heartbeat.Beat beat) {
        return new Heartbeat(lease, beat, told::countDown);
    }

    private static DatabaseFailure failure(String state) {
        return new DatabaseFailure(DatabaseFailure.At.STATEMENT, new SQLException("", state));
    }

    @Test
    void theEndOfTheLeaseInterruptsTheWork() {
        Heartbeat heartbeat = heartbeat(Duration.ofMillis(200), (millis, sending) -> {
            throw failure("08006");
        });
        long sent = System.nanoTime();
        heartbeat.start(sent);
        try (Interruption working = heartbeat.working()) {
            assertThrows(InterruptedException.class, () -> new CountDownLatch(1).await());
        }
        long lasted = System.nanoTime() - sent;
        assertTrue(lasted >= Duration.ofMillis(200).toNanos(), "not before it");
        assertTrue(heartbeat.isLost());
        heartbeat.end();
        assertEquals(0, told.getCount(), "who is to be told has been told after the end");
        assertFalse(Thread.currentThread().isInterrupted());
    }

    @Test
    void theServersWordInterruptsTheWorkAtOnce() throws Exception {
        // The lease would last for hours; the beat comes when the third of it that has passed is over.
        Heartbeat heartbeat = heartbeat(LONG, (millis, sending) -> {
            throw failure("ID409");
        });
        heartbeat.start(System.nanoTime() - LONG.toNanos() / 2);
        try (Interruption working = heartbeat.working()) {
            assertThrows(InterruptedException.class, () -> new CountDownLatch(1).await());
        }
        assertTrue(told.await(30, TimeUnit.SECONDS));
        heartbeat.end();
    }

    @Test
    void aFailedBeatIsRepeatedAndSaysNothing() throws Exception {
        AtomicInteger beats = new AtomicInteger();
        CountDownLatch second = new CountDownLatch(2);
        Heartbeat heartbeat = heartbeat(Duration.ofSeconds(20), (millis, sending) -> {
            second.countDown();
            if (beats.incrementAndGet() == 1) {
                throw failure("08006");
            }
            sending.run();
        });
        // A third of the lease has passed, so the first beat comes now, the second a tenth of it later.
        heartbeat.start(System.nanoTime() - Duration.ofSeconds(7).toNanos());
        assertTrue(second.await(30, TimeUnit.SECONDS));
        assertFalse(heartbeat.isLost());
        heartbeat.end();
    }

    @Test
    void whoHasFinishedIsNotInterrupted() {
        Heartbeat heartbeat = heartbeat(LONG, (millis, sending) -> sending.run());
        heartbeat.start(System.nanoTime());
        try (Interruption working = heartbeat.working()) {
            assertFalse(heartbeat.isLost());
        }
        heartbeat.lose();
        heartbeat.end();
        assertFalse(Thread.currentThread().isInterrupted());
    }

    @Test
    void awaitingTheLossTakesTheInterruption() throws Exception {
        Heartbeat heartbeat = heartbeat(Duration.ofMillis(50), (millis, sending) -> {
            throw failure("08006");
        });
        heartbeat.start(System.nanoTime());
        try (Interruption working = heartbeat.working()) {
            heartbeat.awaitLoss();
            assertFalse(Thread.currentThread().isInterrupted());
        }
        heartbeat.end();
    }
}
