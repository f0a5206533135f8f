package idempotency.postgres;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;

/**
 * The time of a run of work, which begins when this is made, by the thread of the work. When it has passed, that
 * thread is interrupted. Work that goes on for a tenth of its time, at most a second, is given up: another thread
 * does what has to be done for the request. If the work returns nevertheless, its thread waits for that.
 */
final class Limit implements AutoCloseable {
    private static final long LONGEST_GRACE_NANOS = 1_000_000_000;

    private final Duration time;
    private final Runnable onLate;
    private final Runnable onGivenUp;
    private final Interruption interruption = new Interruption();
    private final CountDownLatch givenUp = new CountDownLatch(1);
    private Future<?> alarm;
    private boolean over;
    private boolean late;
    private boolean left;

    /** {@code onLate} has to be short. */
    Limit(Duration time, Runnable onLate, Runnable onGivenUp) {
        this.time = time;
        this.onLate = onLate;
        this.onGivenUp = onGivenUp;
        alarm = Threads.after(time.toNanos(), this::pass);
    }

    private synchronized void pass() {
        if (over) {
            return;
        }
        late = true;
        onLate.run();
        interruption.send();
        alarm = Threads.after(Math.min(time.toNanos() / 10, LONGEST_GRACE_NANOS), this::giveUp);
    }

    private synchronized void giveUp() {
        if (over) {
            return;
        }
        left = true;
        Threads.run(() -> {
            try {
                onGivenUp.run();
            } finally {
                givenUp.countDown();
            }
        });
    }

    /** The work has returned. */
    @Override
    public void close() {
        boolean wait;
        synchronized (this) {
            over = true;
            alarm.cancel(false);
            interruption.close();
            wait = left;
        }
        boolean interrupted = false;
        while (wait) {
            try {
                givenUp.await();
                wait = false;
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    synchronized boolean isGivenUp() {
        return left;
    }

    /** For work that has returned: null, or that it was late. */
    synchronized HandlerLate failure() {
        return late ? new HandlerLate(time) : null;
    }
}
