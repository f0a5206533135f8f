package idempotency.postgres;

import idempotency.postgres.Result.Judged;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;

/**
 * Does the work that no client sends again: claims the records of a scope that are due, runs the handler for each,
 * and ends its claim. {@link Idempotency#worker} makes one.
 */
public final class Worker implements AutoCloseable {
    private static final long LONGEST_PAUSE = Duration.ofSeconds(30).toNanos();
    private static final long LONGEST_FIRST_PAUSE = Duration.ofSeconds(1).toNanos(); // of a LISTEN that has failed
    private static final int MOST_CLAIMS = 1000;
    private static final int LONGEST_CHANNEL = 63;

    /**
     * Work in the transaction that also completes its record. An exception rolls all of it back, and the record is due
     * again by its policy.
     */
    @FunctionalInterface
    public interface TransactionalHandler {
        /** Null completes the record without an answer. One that is not kept, by its status, counts as a failure. */
        Answer run(Work work, Connection connection) throws Exception;
    }

    /**
     * Work outside the database, or in steps. After an exception the record is due again, or unknown, by its policy;
     * after a {@link NothingHappenedException} it is due again.
     */
    @FunctionalInterface
    public interface LeasedHandler {
        /** Null completes the record without an answer. One that is not kept, by its status, counts as a failure. */
        Answer run(Work work, Claim claim) throws Exception;
    }

    /** The two kinds of work. */
    private interface Mode {
        Result run(Hold hold, Work work);
    }

    private final Builder options;
    private final Mode mode;
    private final Set<Hold> running = new HashSet<>();
    private final CountDownLatch ended = new CountDownLatch(1);
    private boolean begun;
    private boolean stopping;
    private boolean aborting;
    private boolean woken;

    private Worker(Builder options, Mode mode) {
        this.options = options;
        this.mode = mode;
    }

    /** Options, each with its default. */
    public static final class Builder implements Cloneable {
        private final Store store;
        private final String scope;
        private int size = 1;
        private Duration lease = Request.LEASE;
        private Duration poll = Duration.ofSeconds(1);
        private Duration handlerTimeout = Duration.ofMillis(Contract.LEASED_HANDLER_TIMEOUT_MS);
        private String channel;
        private BiConsumer<Throwable, Work> onError = (error, work) -> System.getLogger(Worker.class.getName())
                .log(System.Logger.Level.WARNING, work == null ? "a worker" : "the work of a record in " + work.execution().scope(), error);

        Builder(Store store, String scope) {
            this.store = store;
            this.scope = Objects.requireNonNull(scope, "scope");
        }

        /** Claims in work at the same time: by default 1. */
        public Builder size(int size) {
            Request.check(size > 0 && size <= MOST_CLAIMS, "size", "is from 1 to " + MOST_CLAIMS + ": " + size);
            this.size = size;
            return this;
        }

        /** How long a claim may be silent: by default 30 s. */
        public Builder lease(Duration lease) {
            Request.checkPositive("lease", Objects.requireNonNull(lease, "lease"));
            this.lease = lease;
            return this;
        }

        /** The pause when nothing is due: by default 1 s, with jitter. */
        public Builder poll(Duration poll) {
            Request.checkPositive("poll", Objects.requireNonNull(poll, "poll"));
            this.poll = poll;
            return this;
        }

        /** Limit for one run of the handler: by default 10 min. Then its thread is interrupted, and it has failed. */
        public Builder handlerTimeout(Duration handlerTimeout) {
            Request.checkPositive("handlerTimeout", Objects.requireNonNull(handlerTimeout, "handlerTimeout"));
            this.handlerTimeout = handlerTimeout;
            return this;
        }

        /** A channel of NOTIFY: a notification ends the pause. It takes a connection for as long as the worker runs. */
        public Builder channel(String channel) {
            int bytes = channel.getBytes(StandardCharsets.UTF_8).length;
            Request.check(bytes > 0 && bytes <= LONGEST_CHANNEL && channel.indexOf('\0') < 0, "channel",
                    "is no name of 1 to " + LONGEST_CHANNEL + " bytes: " + channel);
            this.channel = channel;
            return this;
        }

        /** Gets the failures of handlers with their work, and those of the database with null. By default they are logged. */
        public Builder onError(BiConsumer<Throwable, Work> onError) {
            this.onError = Objects.requireNonNull(onError, "onError");
            return this;
        }

        /** Effects in this database commit together with the end of the record, or not at all. */
        public Worker transactional(TransactionalHandler handler) {
            Objects.requireNonNull(handler, "handler");
            return make((hold, work) -> new LeasedTransaction(hold, connection -> judged(handler.run(work, connection))).run());
        }

        /** The handler runs outside of any transaction. */
        public Worker leased(LeasedHandler handler) {
            Objects.requireNonNull(handler, "handler");
            return make((hold, work) ->
                    new Leased(hold.store, hold.request, claim -> judged(handler.run(work, claim)), () -> { }).run(hold));
        }

        private Worker make(Mode mode) {
            try {
                return new Worker((Builder) clone(), mode);
            } catch (CloneNotSupportedException itIsCloneable) {
                throw new AssertionError(itIsCloneable);
            }
        }

        private static Judged judged(Answer answer) {
            return new Judged(answer, answer == null || Answer.isKept(answer.status()) ? Verdict.KEEP : null);
        }
    }

    /**
     * Works until {@link #stop}, whatever happens to the database. An interruption of the calling thread stops the
     * worker, and a second one aborts it.
     *
     * @throws IllegalStateException if the first claim is a mistake: a missing right, for example
     */
    public void run() {
        synchronized (this) {
            if (begun) {
                throw new IllegalStateException("idempotency: this worker was run before");
            }
            begun = true;
        }
        boolean interrupted = false;
        try (Listener listener = listener()) {
            claimUntilStopped();
        } catch (InterruptedException e) {
            interrupted = true;
        } finally {
            stop();
            interrupted |= awaitHandlers();
            ended.countDown();
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Runs in a thread of its own, which keeps the program alive. */
    public void start() {
        new Thread(this::run, "idempotency worker").start();
    }

    /** Claims nothing more. {@link #run} returns when the running handlers have ended. */
    public synchronized void stop() {
        stopping = true;
        notifyAll();
    }

    /** Stops, and tells the running handlers to stop: their threads are interrupted. */
    public synchronized void abort() {
        stop();
        aborting = true;
        running.forEach(hold -> hold.heartbeat.tellToStop());
    }

    /** Stops, and waits for the running handlers. An interruption aborts the worker. Not to be called by a handler. */
    @Override
    public void close() {
        stop();
        synchronized (this) {
            if (!begun) {
                return;
            }
        }
        boolean interrupted = false;
        while (ended.getCount() > 0) {
            try {
                ended.await();
            } catch (InterruptedException e) {
                interrupted = true;
                abort();
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private Listener listener() {
        long first = Math.min(options.poll.toNanos(), LONGEST_FIRST_PAUSE);
        return options.channel == null ? null : new Listener(options.store, options.channel, this::wake,
                error -> report(error, null), failures -> backoff(first, failures));
    }

    private void claimUntilStopped() throws InterruptedException {
        int failures = 0;
        boolean proven = false;
        for (int free = awaitFree(); free > 0; free = awaitFree()) {
            try {
                boolean filled = claim(free) == free;
                proven = true;
                failures = 0;
                if (!filled) {
                    rest((long) (options.poll.toNanos() * (0.5 + ThreadLocalRandom.current().nextDouble())));
                }
            } catch (DatabaseFailure e) {
                if (!proven && DatabaseFailure.isMistake(e)) {
                    throw new IllegalStateException("the database has refused a statement of idempotency", e.getCause());
                }
                report(e, null);
                rest(backoff(options.poll.toNanos(), failures++));
            }
        }
    }

    /** How many may be claimed; 0 when the worker is stopped. */
    private synchronized int awaitFree() throws InterruptedException {
        while (!stopping && running.size() >= options.size) {
            wait();
        }
        woken = false; // a notification during the next claim counts
        return stopping ? 0 : options.size - running.size();
    }

    private int claim(int most) throws DatabaseFailure {
        long[] sent = new long[1];
        List<Statements.Due> due = options.store.alone(connection -> {
            sent[0] = System.nanoTime();
            return Statements.due(connection, options.scope, most, options.lease, options.store.holder);
        });
        due.forEach(each -> take(each, sent[0]));
        return due.size();
    }

    private void take(Statements.Due due, long sent) {
        Request request = Request.of(due.claimed().key(), due.scope(), due.principal()).lease(options.lease)
                .handlerTimeout(options.handlerTimeout);
        Hold hold = Hold.of(options.store, request, due.claimed(), sent, () -> { });
        synchronized (this) {
            running.add(hold);
            if (aborting) {
                hold.heartbeat.tellToStop();
            }
        }
        try {
            Threads.run(() -> {
                try {
                    work(hold, new Work(hold, due));
                } finally {
                    left(hold);
                }
            });
        } catch (Throwable noThread) {
            hold.heartbeat.end();
            left(hold);
            throw noThread;
        }
    }

    private void work(Hold hold, Work work) {
        try {
            Result result = mode.run(hold, work);
            if (result.lost()) {
                report(LeaseLost.after(result.failure()), work);
            } else if (result.failure() != null) {
                report(result.failure(), work);
            }
        } catch (Throwable e) {
            report(e, work);
        }
    }

    private synchronized void left(Hold hold) {
        running.remove(hold);
        notifyAll();
    }

    private synchronized void wake() {
        woken = true;
        notifyAll();
    }

    private synchronized void rest(long nanos) throws InterruptedException {
        long until = System.nanoTime() + nanos;
        for (long left = nanos; left > 0 && !stopping && !woken; left = until - System.nanoTime()) {
            TimeUnit.NANOSECONDS.timedWait(this, left);
        }
    }

    /** Doubles with each failure, up to 30 s. */
    private static long backoff(long first, int failures) {
        double longest = Math.min(first * Math.pow(2, failures), LONGEST_PAUSE);
        return (long) (longest * (0.5 + ThreadLocalRandom.current().nextDouble() / 2));
    }

    /** Whether the thread was interrupted. */
    private synchronized boolean awaitHandlers() {
        boolean interrupted = false;
        while (!running.isEmpty()) {
            try {
                wait();
            } catch (InterruptedException e) {
                interrupted = true;
                abort();
            }
        }
        return interrupted;
    }

    private void report(Throwable error, Work work) {
        try {
            options.onError.accept(error instanceof Exception failure ? Idempotency.told(failure) : error, work);
        } catch (RuntimeException aHookThatFailsEndsNothing) {
            return;
        }
    }
}
