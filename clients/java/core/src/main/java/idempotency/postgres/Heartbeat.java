package idempotency.postgres;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * Extends a lease while its holder works. A beat comes at a third of the lease; after a failed one, the next
 * comes a tenth of the lease later. A failed beat does not tell who owns the claim, so the work continues until
 * the lease may have expired. The monotonic clock counts that from the moment at which the last successful
 * request was sent, so never longer than the server counts. Then, or when the server reports the claim as lost,
 * the working thread is interrupted.
 */
final class Heartbeat {
    interface Beat {
        /** Extends the lease; the sender notes when the request is sent. */
        void send(long timeoutMillis, Runnable sending) throws DatabaseFailure;
    }

    private final long lease;
    private final Beat beat;
    private final Runnable onLost;
    private final CountDownLatch lostLatch = new CountDownLatch(1);
    private final CountDownLatch stopLatch = new CountDownLatch(1);
    private Interruption work;
    private Future<?> deadline;
    private boolean beating;
    private boolean stopped;
    private boolean ended;
    private boolean telling;

    Heartbeat(Duration lease, Beat beat, Runnable onLost) {
        this.lease = lease.toNanos();
        this.beat = beat;
        this.onLost = onLost;
    }

    /** For work without a claim. */
    static Heartbeat none() {
        return new Heartbeat(Duration.ZERO, null, () -> { });
    }

    /** For a claim that was requested at this moment. */
    void start(long sent) {
        prolong(sent);
        beatInAThread(sent);
    }

    /** The work runs again. */
    synchronized void resume() {
        stopped = false;
        if (!beating) {
            beatInAThread(System.nanoTime() - lease / 3);
        }
    }

    private void beatInAThread(long sent) {
        beating = true;
        Threads.run(() -> beat(sent));
    }

    private void beat(long since) {
        long sent = since;
        boolean succeeded = true;
        while (rest(succeeded ? sent + lease / 3 - System.nanoTime() : lease / 10)) {
            long[] moment = {System.nanoTime()};
            try {
                beat.send(TimeUnit.NANOSECONDS.toMillis(lease / 6), () -> moment[0] = System.nanoTime());
                sent = moment[0];
                succeeded = true;
                prolong(sent);
            } catch (DatabaseFailure e) {
                succeeded = false;
                if (DatabaseFailure.isLost(e)) {
                    loseAtWork();
                    return;
                }
            }
        }
    }

    /** Waits for the time of the next beat; false if there is none. */
    private synchronized boolean rest(long nanos) {
        long until = System.nanoTime() + nanos;
        try {
            for (long left = nanos; left > 0 && !stopped; left = until - System.nanoTime()) {
                TimeUnit.NANOSECONDS.timedWait(this, left);
            }
            beating = !stopped && !isLost();
        } catch (InterruptedException ofOurOwnThread) {
            beating = false;
        }
        return beating;
    }

    private synchronized void prolong(long sent) {
        if (deadline != null && !deadline.cancel(false) || ended) {
            return; // too late
        }
        deadline = Threads.after(Math.max(sent + lease - System.nanoTime(), 0), this::lose);
    }

    /** The calling thread works from now on, until the returned object is closed. */
    synchronized Interruption working() {
        work = new Interruption();
        if (isToStop()) {
            work.send();
        }
        return work;
    }

    /** Does not count as a loss if the claim ended during the beat. */
    private synchronized void loseAtWork() {
        if (!stopped) {
            lose();
        }
    }

    synchronized void lose() {
        if (isLost() || ended) {
            return;
        }
        lostLatch.countDown();
        tellToStop();
        notifyAll();
        telling = true;
        Threads.run(() -> {
            try {
                onLost.run();
            } finally {
                told();
            }
        });
    }

    /** The work has to stop; it may hold the claim. */
    synchronized void tellToStop() {
        stopLatch.countDown();
        if (work != null) {
            work.send();
        }
    }

    private synchronized void told() {
        telling = false;
        notifyAll();
    }

    boolean isLost() {
        return lostLatch.getCount() == 0;
    }

    boolean isToStop() {
        return stopLatch.getCount() == 0;
    }

    /** Consumes the interruption that reports the loss. */
    void awaitLoss() throws InterruptedException {
        await(lostLatch);
    }

    /** Consumes the interruption that tells the work to stop. */
    void awaitStop() throws InterruptedException {
        await(stopLatch);
    }

    private void await(CountDownLatch latch) throws InterruptedException {
        try {
            latch.await();
        } catch (InterruptedException e) {
            if (latch.getCount() > 0) {
                throw e;
            }
        }
        synchronized (this) {
            if (work != null) {
                work.take();
            }
        }
    }

    /** The work has ended; the deadline stays. */
    synchronized void stopBeating() {
        stopped = true;
        notifyAll();
    }

    /** The claim has ended. A hook that reports its loss has returned before this does. */
    synchronized void end() {
        stopBeating();
        ended = true;
        if (deadline != null) {
            deadline.cancel(false);
        }
        boolean interrupted = false;
        while (telling) {
            try {
                wait();
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
