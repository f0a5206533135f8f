package idempotency.postgres;

import java.util.concurrent.Future;

/** Interrupts the thread that made it while that does a piece of work, and never after it. */
final class Interruption implements AutoCloseable {
    private final Thread thread = Thread.currentThread();
    private Future<?> alarm;
    private boolean over;
    private boolean sent;

    /** Interrupts at the latest then. */
    static Interruption after(long millis) {
        Interruption interruption = new Interruption();
        interruption.alarm = Threads.after(millis * 1_000_000, interruption::send);
        return interruption;
    }

    synchronized void send() {
        if (!over && !sent) {
            sent = true;
            thread.interrupt();
        }
    }

    /** Called by the thread itself, when it has noticed the interruption. */
    synchronized void take() {
        if (sent) {
            Thread.interrupted();
        }
    }

    /** Clears an interruption of ours that the work did not notice. */
    @Override
    public synchronized void close() {
        over = true;
        if (alarm != null) {
            alarm.cancel(false);
        }
        take();
    }
}
