package idempotency.postgres;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A leased claim, held while its work runs. It ends with the work, unless {@link #unknown} has ended it.
 *
 * <p>When the claim is lost, the working thread is interrupted, and {@link #isLost} returns true.
 */
public final class Claim {
    private final Store store;
    private final Request request;
    private final Claimed claimed;
    private final Heartbeat heartbeat;
    /** Held while a step is noted: a note contains all steps, so an older one must not overwrite a newer one. */
    private final ReentrantLock noting = new ReentrantLock();
    private ObjectNode steps;
    private volatile boolean unknown;
    private volatile boolean late;

    Claim(Hold hold) {
        this.store = hold.store;
        this.request = hold.request;
        this.claimed = hold.claimed;
        this.heartbeat = hold.heartbeat;
        this.steps = store.json.object(claimed.state());
        if (claimed.recoveryPoint() != null && !steps.has(claimed.recoveryPoint())) {
            steps.putNull(claimed.recoveryPoint());
        }
    }

    public interface Step<T, X extends Exception> {
        T run() throws X;
    }

    public Execution execution() {
        return new Execution(request.key, request.scope, request.principal, claimed.attempt());
    }

    /** The last step that an earlier attempt has done; null if there is none. */
    public String recoveryPoint() {
        return claimed.recoveryPoint();
    }

    /** The results of the steps, in JSON. */
    public synchronized String state() {
        return steps.toString();
    }

    /** Whether another worker may have the claim. The work must then have no further effect. */
    public boolean isLost() {
        return heartbeat.isLost();
    }

    public void throwIfLost() {
        if (isLost()) {
            throw new LeaseLost();
        }
    }

    /** Waits until the claim is lost, and consumes the interruption that reports it. */
    public void awaitLoss() throws InterruptedException {
        heartbeat.awaitLoss();
    }

    /**
     * Ends the claim: it is not known whether the work had its effect. Repeats are refused as {@code unknown}
     * and not executed, until an operator decides. A later result or exception of the work goes to the caller,
     * but is not stored.
     *
     * @param reference the other service's name for the attempt; null if there is none
     */
    public void unknown(String error, String reference) {
        throwIfNotHeld();
        heartbeat.stopBeating();
        if (isKept() && !recordUnknown(error, reference)) {
            throw new LeaseLost();
        }
        unknown = true;
        heartbeat.end();
    }

    private boolean recordUnknown(String error, String reference) {
        try {
            return Leased.whileHeld(store, heartbeat, connection -> {
                Statements.unknown(connection, request, Statements.sanitized(error),
                        reference == null ? null : Statements.sanitized(reference), claimed.token());
                return null;
            });
        } catch (DatabaseFailure e) {
            throw new IllegalStateException("the database has refused a statement of idempotency", e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new DatabaseAway(e);
        }
    }

    /** The time of the work has passed: it begins no step any more. */
    void close() {
        late = true;
    }

    boolean isUnknown() {
        return unknown;
    }

    private void throwIfNotHeld() {
        if (unknown) {
            throw new IllegalStateException("the claim has ended: its outcome is unknown");
        }
        if (late) {
            throw new IllegalStateException("the claim has ended: its time has passed");
        }
        throwIfLost();
    }

    /** False if the work runs unprotected. */
    private boolean isKept() {
        return claimed.token() != null;
    }

    /**
     * Does a part of the work and notes that it is done, with its result, which must fit into JSON. An attempt
     * after a crash does not repeat the part, but gets the result. A crash between work and note repeats the
     * work: a service that it calls must recognize a repetition, by {@link Execution#derived}.
     */
    public <T, X extends Exception> T step(String name, Class<T> type, Step<T, X> work) throws X {
        throwIfNotHeld();
        if (isDone(name)) {
            return resultOf(name, type);
        }
        T result = work.run();
        JsonNode noted = store.json.toTree(result);
        try {
            // The lock's holder already has its connection, so it never waits for a thread that waits for the
            // lock.
            if (isKept()) {
                Store.again(request.attempts, () -> store.alone(connection -> noteAlone(connection, name, noted)));
            } else {
                noteAlone(null, name, noted);
            }
        } catch (Exception e) {
            throw noteFailed(e);
        }
        return result;
    }

    /**
     * A step whose work is SQL: effect and note commit together, so that it is done once. It is repeated after
     * a conflict or a lost connection, but not after a COMMIT without an answer: that is an error, and the next
     * attempt sees whether the step was done.
     */
    public <T, X extends Exception> T stepInTransaction(String name, Class<T> type, TransactionalWork<T, X> work) throws X {
        throwIfNotHeld();
        if (isDone(name)) {
            return resultOf(name, type);
        }
        for (int attempt = 1;; attempt++) {
            try {
                return inTransaction(name, work);
            } catch (Exception e) {
                if (attempt == request.attempts || DatabaseFailure.isInDoubt(e) || !DatabaseFailure.isRetryable(e)) {
                    throw Claim.<X>thrown(e instanceof DatabaseFailure ? noteFailed(e) : e);
                }
                pause(attempt);
            }
        }
    }

    private <T, X extends Exception> T inTransaction(String name, TransactionalWork<T, X> work) throws Exception {
        ObjectNode[] after = new ObjectNode[1];
        try {
            T value = store.inTransaction(transaction -> {
                T result = lent(transaction.connection(), work);
                JsonNode noted = store.json.toTree(result);
                noting.lock(); // until it has committed
                after[0] = with(name, noted);
                if (!isKept()) {
                    store.check(transaction.connection());
                }
                store.within(transaction.connection(), store.timeoutMillis, connection -> note(connection, name, after[0]));
                return new Store.Ended<>(result, true);
            });
            done(after[0]);
            return value;
        } finally {
            if (noting.isHeldByCurrentThread()) {
                noting.unlock();
            }
        }
    }

    private static void pause(int attempt) {
        try {
            Store.pause(attempt);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** The caller declares the exceptions of the work. */
    @SuppressWarnings("unchecked")
    static <X extends Exception> X thrown(Exception e) {
        return (X) e;
    }

    private RuntimeException noteFailed(Exception e) {
        if (DatabaseFailure.isLost(e)) {
            heartbeat.lose();
            return new LeaseLost();
        }
        return e instanceof RuntimeException same ? same : new DatabaseAway(e);
    }

    private Void noteAlone(Connection connection, String name, JsonNode result) throws SQLException {
        noting.lock();
        try {
            ObjectNode after = with(name, result);
            note(connection, name, after);
            done(after);
            return null;
        } finally {
            noting.unlock();
        }
    }

    private Void note(Connection connection, String name, ObjectNode after) throws SQLException {
        if (isKept()) {
            Statements.checkpoint(connection, request, name, after.toString(), claimed.token());
        }
        return null;
    }

    private synchronized boolean isDone(String name) {
        return steps.has(name);
    }

    private synchronized <T> T resultOf(String name, Class<T> type) {
        return store.json.read(steps.get(name), type);
    }

    private synchronized ObjectNode with(String name, JsonNode result) {
        ObjectNode after = steps.deepCopy();
        after.set(name, result);
        return after;
    }

    private synchronized void done(ObjectNode after) {
        steps = after;
    }

    private static <T> T lent(Connection connection, TransactionalWork<T, ?> work) throws Exception {
        try (Lent lent = new Lent(connection)) {
            return work.run(lent.connection());
        }
    }
}
