package idempotency.postgres;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Daemon threads that end when idle: one timer, and several workers. */
final class Threads {
    private static final ThreadFactory DAEMONS = work -> {
        Thread thread = new Thread(work, "idempotency");
        thread.setDaemon(true);
        return thread;
    };
    private static final ExecutorService WORKERS =
            new ThreadPoolExecutor(0, Integer.MAX_VALUE, 10, TimeUnit.SECONDS, new SynchronousQueue<>(), DAEMONS);
    private static final ScheduledThreadPoolExecutor CLOCK = clock();

    private Threads() {}

    private static ScheduledThreadPoolExecutor clock() {
        ScheduledThreadPoolExecutor clock = new ScheduledThreadPoolExecutor(1, DAEMONS);
        clock.setKeepAliveTime(10, TimeUnit.SECONDS);
        clock.allowCoreThreadTimeOut(true);
        clock.setRemoveOnCancelPolicy(true);
        return clock;
    }

    static void run(Runnable work) {
        WORKERS.execute(work);
    }

    /** The timer's tasks must be short. */
    static ScheduledFuture<?> after(long nanos, Runnable work) {
        return CLOCK.schedule(work, nanos, TimeUnit.NANOSECONDS);
    }
}
