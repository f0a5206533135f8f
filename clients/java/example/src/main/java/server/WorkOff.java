package server;

import com.fasterxml.jackson.databind.JsonNode;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import idempotency.postgres.Answer;
import idempotency.postgres.Idempotency;
import idempotency.postgres.NothingHappenedException;
import idempotency.postgres.Work;
import idempotency.postgres.Worker;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;

/** The worker of the conformance suite, clients/conformance/README.md: the request of a record tells its actions. */
public final class WorkOff {
    private static final String INSERT = "INSERT INTO effect (principal, key, note) VALUES (?, ?, ?)";

    /** Connections without a claim. */
    private final HikariDataSource own = pool(20);
    private final Executor threads = Executors.newCachedThreadPool();

    private WorkOff() {
    }

    public static void main(String[] arguments) {
        try {
            new WorkOff().run();
        } catch (Throwable mistake) {
            mistake.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private void run() {
        int size = Integer.parseInt(variable("WORKER_SIZE"));
        Idempotency idempotency = Idempotency.on(pool(2 * size + 2)).databaseTimeout(Duration.ofSeconds(2)).build();
        Worker.Builder options = idempotency.worker(variable("WORKER_SCOPE")).size(size)
                .lease(millis("WORKER_LEASE_MS")).poll(millis("WORKER_POLL_MS")).handlerTimeout(millis("WORKER_HANDLER_TIMEOUT_MS"))
                .onError((error, work) -> System.err.println((work == null ? "" : work.execution() + ": ") + error));
        if (!variable("WORKER_CHANNEL").isEmpty()) {
            options.channel(variable("WORKER_CHANNEL"));
        }
        Worker worker = variable("WORKER_MODE").equals("leased") ? options.leased((work, claim) -> handle(work, null))
                : options.transactional(this::handle);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            worker.close();
            Runtime.getRuntime().halt(0); // the machine's own status of SIGTERM is another
        }));
        System.out.println("ready");
        worker.run();
    }

    private Answer handle(Work work, Connection transaction) throws SQLException, InterruptedException {
        JsonNode order = work.request(JsonNode.class);
        if (order.has("effect")) {
            effect(order.get("effect").asText(), work, transaction);
        }
        if (order.has("gate")) {
            pass(order.get("gate").asLong());
        }
        if (order.path("lost").asBoolean()) {
            work.awaitStop();
            effect("lost", work, null);
        }
        int attempt = work.execution().attempt();
        if (attempt < order.path("throw_until").asInt()) {
            throw new IllegalStateException("the handler was told to fail");
        }
        if (attempt < order.path("nothing_until").asInt()) {
            throw new NothingHappenedException("nothing happened");
        }
        return !order.has("status") ? null : new Answer(order.get("status").asInt(), Map.of(),
                order.path("body").asText("").getBytes(StandardCharsets.UTF_8));
    }

    private void effect(String note, Work work, Connection transaction) throws SQLException {
        if (transaction == null) {
            alone(connection -> effect(note, work, connection));
            return;
        }
        try (PreparedStatement statement = transaction.prepareStatement(INSERT)) {
            statement.setString(1, work.execution().principal());
            statement.setString(2, work.execution().key());
            statement.setString(3, note);
            statement.execute();
        }
    }

    /** Waits for a gate that the suite opens. */
    private void pass(long gate) {
        alone(connection -> {
            for (String function : new String[] {"pg_advisory_lock_shared", "pg_advisory_unlock_shared"}) {
                try (PreparedStatement statement = connection.prepareStatement("SELECT " + function + "(?)")) {
                    statement.setLong(1, gate);
                    statement.execute();
                }
            }
        });
    }

    private interface Action {
        void run(Connection connection) throws SQLException;
    }

    /** Whether the thread of the handler is interrupted or not: a pool would give it no connection. */
    private void alone(Action action) {
        CompletableFuture.runAsync(() -> {
            try (Connection connection = own.getConnection()) {
                action.run(connection);
            } catch (SQLException e) {
                throw new IllegalStateException(e);
            }
        }, threads).join();
    }

    private static HikariDataSource pool(int size) {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:postgresql://" + variable("PGHOST") + ":" + variable("PGPORT") + "/" + variable("PGDATABASE")
                + "?sslmode=disable&connectTimeout=2&loginTimeout=2");
        config.addDataSourceProperty("ApplicationName", variable("PGAPPNAME"));
        config.setUsername(variable("PGUSER"));
        config.setMaximumPoolSize(size);
        config.setMinimumIdle(0);
        config.setConnectionTimeout(2000);
        config.setValidationTimeout(1000);
        config.setInitializationFailTimeout(-1);
        return new HikariDataSource(config);
    }

    private static Duration millis(String name) {
        return Duration.ofMillis(Long.parseLong(variable(name)));
    }

    private static String variable(String name) {
        return System.getenv(name);
    }
}
