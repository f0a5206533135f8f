package idempotency.postgres;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import idempotency.postgres.Result.Judged;
import java.lang.management.ManagementFactory;
import java.sql.Connection;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import javax.sql.DataSource;

/**
 * Executes a request once, however often it is sent. A claim lives for the length of a call of work, so a
 * program can neither forget it nor complete it twice: work that returns completes it, work that throws gives
 * it back.
 */
public final class Idempotency {
    private final Store store;
    private final Map<String, String> problems = new ConcurrentHashMap<>();

    private Idempotency(Builder options) {
        store = new Store(options.database, new Json(options.mapper), options.holder, Math.max(options.timeout.toMillis(), 1));
    }

    public static Builder on(DataSource pool) {
        return on(new JdbcDatabase(pool));
    }

    public static Builder on(Database database) {
        return new Builder(database);
    }

    public static final class Builder {
        private final Database database;
        private ObjectMapper mapper = JsonMapper.builder().findAndAddModules().build();
        private Duration timeout = Duration.ofMillis(Contract.DATABASE_TIMEOUT_MS);
        private String holder = ManagementFactory.getRuntimeMXBean().getName();

        private Builder(Database database) {
            this.database = database;
        }

        /**
         * The longest time for a statement of this library, COMMIT included, or for a connection: by default 10
         * s. After it the connection is closed, and the database counts as away.
         */
        public Builder databaseTimeout(Duration timeout) {
            Request.checkPositive("databaseTimeout", timeout);
            this.timeout = timeout;
            return this;
        }

        /** Writes and reads results of work. */
        public Builder objectMapper(ObjectMapper mapper) {
            this.mapper = mapper;
            return this;
        }

        /** The name of this worker, shown to operators. */
        public Builder holder(String holder) {
            this.holder = holder;
            return this;
        }

        public Idempotency build() {
            return new Idempotency(this);
        }
    }

    /**
     * Does work in the transaction that holds its claim, and keeps its result, which must fit into JSON, for
     * every repeat. An exception of work rolls all of it back. Work may run several times, of which one
     * commits.
     *
     * @throws Refused if the work is not done
     * @throws DatabaseAway if the database does not answer
     * @throws IllegalStateException if nothing can be stored, because work has hidden an error of its
     *     transaction
     */
    public <T, X extends Exception> T transactionally(Request request, Class<T> type, TransactionalWork<T, X> work) throws X {
        Result result = runTransactional(request, (execution, connection) -> kept(work.run(connection)));
        return valueOf(result, type);
    }

    /**
     * Does work outside the database, under a claim that commits before it and is extended while it runs. An
     * exception of work fails the claim, as an attempt that may have had its effect: if the policy has {@code
     * on_lease_expiry => 'unknown'} a repeat is refused as unknown, else it is executed again. After a {@link
     * NothingHappenedException} a repeat is always executed.
     *
     * @throws LeaseLost if another worker may have the claim: the result is not stored
     * @throws Refused if the work is not done
     * @throws DatabaseAway if the database does not answer
     */
    public <T, X extends Exception> T leased(Request request, Class<T> type, LeasedWork<T, X> work) throws X {
        Result result = runLeased(request, claimed -> { }, claim -> kept(work.run(claim)));
        return valueOf(result, type);
    }

    /**
     * Handles a message that may be delivered several times, in a transaction: true if this call was the first.
     * An exception of work rolls all of it back, so that the next delivery is the first. Acknowledge the
     * message when this returns, whether true or false.
     */
    public <X extends Exception> boolean once(String id, String scope, String principal, TransactionalWork<?, X> work) throws X {
        try {
            return Store.again(Request.ATTEMPTS, () -> store.inTransaction(transaction -> {
                Connection connection = transaction.connection();
                // Waits without limit for another delivery of the message.
                boolean first = store.within(connection, 0, each -> Statements.once(each, id, scope, principal));
                if (first) {
                    try (Lent lent = new Lent(connection)) {
                        work.run(lent.connection());
                    }
                    store.check(connection);
                }
                return new Store.Ended<>(first, first);
            }));
        } catch (Exception e) {
            throw Claim.<X>thrown(told(e));
        }
    }

    /**
     * A worker, which does the work that no client sends again: webhooks, jobs, abandoned work.
     *
     * @param scope of the records, or the beginning of scopes and {@code *}
     */
    public Worker.Builder worker(String scope) {
        return new Worker.Builder(store, scope);
    }

    static Exception told(Exception failure) {
        if (!(failure instanceof DatabaseFailure)) {
            return failure;
        }
        return DatabaseFailure.isUnavailable(failure) ? new DatabaseAway(failure)
                : new IllegalStateException("the database has refused a statement of idempotency", failure);
    }

    private Judged kept(Object result) {
        Map<String, java.util.List<String>> headers = Answer.noHeaders();
        headers.put("Content-Type", java.util.List.of("application/json"));
        return new Judged(new Answer(200, headers, Identity.utf8(store.json.write(result))), Verdict.KEEP);
    }

    private <T, X extends Exception> T valueOf(Result result, Class<T> type) throws X {
        if (result.lost()) {
            throw new LeaseLost();
        }
        if (result.failure() != null) {
            throw Claim.<X>thrown(told(result.failure()));
        }
        Claimed claimed = result.claimed();
        if (claimed.isExecution()) {
            return store.json.read(result.answer().body(), type);
        }
        if (!claimed.isReplay()) {
            throw new Refused(claimed, claimed.outcome());
        }
        Answer stored = Answer.of(claimed);
        if (stored == null) {
            throw new Refused(claimed, Outcome.FAILED);
        }
        return store.json.read(stored.body(), type);
    }

    // The rest is for adapters.

    public interface TransactionHandler {
        Judged run(Execution execution, Connection connection) throws Exception;
    }

    public interface LeasedHandler {
        Judged run(Claim claim) throws Exception;
    }

    /** Work that makes its answer, and decides whether it is stored. */
    public Result runTransactional(Request request, TransactionHandler work) {
        return runTransactional(request, work, () -> { });
    }

    /** {@code onGivenUp} is called by another thread, for late work that does not react to its interruption. */
    public Result runTransactional(Request request, TransactionHandler work, Runnable onGivenUp) {
        return new Transactional(store, request, work, onGivenUp).run();
    }

    /** Work that makes its answer; {@code onLost} is called by another thread. */
    public Result runLeased(Request request, Consumer<Claimed> onLost, LeasedHandler work) {
        return runLeased(request, onLost, work, () -> { });
    }

    /** {@code onGivenUp} is called by another thread, for late work that does not react to its interruption. */
    public Result runLeased(Request request, Consumer<Claimed> onLost, LeasedHandler work, Runnable onGivenUp) {
        return new Leased(store, request, work, onGivenUp).run(onLost);
    }

    /** A claim without a record, for work while the database is away. */
    public Claim claimOfNobody(Request request) {
        return new Claim(Hold.none(store, request));
    }

    /** The server's problem document of a word; null if the server does not answer. It never changes. */
    public String problem(String word) {
        String known = problems.get(word);
        if (known == null) {
            try {
                known = Store.again(Request.ATTEMPTS, () -> store.alone(connection -> Statements.problem(connection, word)));
                if (known != null) {
                    problems.put(word, known);
                }
            } catch (Exception away) {
                return null;
            }
        }
        return known;
    }
}
