package server;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import idempotency.postgres.Claim;
import idempotency.postgres.Execution;
import idempotency.postgres.NothingHappenedException;
import idempotency.postgres.servlet.Current;
import idempotency.postgres.servlet.Event;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Base64;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import org.springframework.dao.DataAccessException;
import org.springframework.http.HttpStatusCode;
import org.springframework.jdbc.core.ConnectionCallback;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.stereotype.Component;
import org.springframework.web.server.ResponseStatusException;
import org.springframework.transaction.support.TransactionSynchronizationManager;
import org.springframework.transaction.support.TransactionTemplate;

/** The one handler of all routes: the body of a request tells its actions. */
@Component
class Handler {
    private static final String INSERT = "INSERT INTO effect (principal, key, note) VALUES (?, ?, ?)";

    private final ObjectMapper mapper;
    private final JdbcTemplate claims;
    private final TransactionTemplate transactions;
    /** Connections without a claim. */
    private final JdbcTemplate own;
    private final Map<String, Integer> runs = new ConcurrentHashMap<>();

    Handler(ObjectMapper mapper, JdbcTemplate claims, TransactionTemplate transactions, HikariDataSource pool) {
        this.mapper = mapper;
        this.claims = claims;
        this.transactions = transactions;
        HikariConfig other = new HikariConfig();
        other.setJdbcUrl(pool.getJdbcUrl());
        other.setUsername(pool.getUsername());
        other.setMaximumPoolSize(20);
        other.setMinimumIdle(0);
        other.setConnectionTimeout(1000);
        other.setValidationTimeout(500);
        other.setInitializationFailTimeout(-1);
        own = new JdbcTemplate(new HikariDataSource(other));
    }

    void handle(byte[] body, HttpServletRequest request, HttpServletResponse response, Execution execution, Claim claim)
            throws IOException, InterruptedException {
        JsonNode order = order(request, body);
        if (order == null) {
            effect("raw", execution, claim);
            if (body != null) {
                response.getOutputStream().write(body);
            }
            return;
        }
        work(order, execution, claim);
        if (order.has("late")) {
            writeLate(order.get("late").asText(), execution, Current.of(request).connection());
        }
        response.setStatus(order.path("status").asInt(201));
        order.path("headers").forEach(pair -> response.addHeader(pair.get(0).asText(), pair.get(1).asText()));
        byte[] piece = Base64.getDecoder().decode(order.path("body").asText(""));
        for (int i = 0; i < order.path("repeat").asInt(1); i++) {
            write(request, response, piece);
        }
    }

    private static void write(HttpServletRequest request, HttpServletResponse response, byte[] piece) throws IOException {
        OutputStream out = response.getOutputStream();
        if (!request.getRequestURI().equals("/streamed")) {
            out.write(piece);
            return;
        }
        for (int at = 0; at < piece.length; at += 100) {
            out.write(piece, at, Math.min(100, piece.length - at));
            out.flush();
        }
    }

    /** The work of /transactional without the client. */
    void bare(String note) {
        transactions.executeWithoutResult(status -> claims.update(INSERT, "bench", "", note));
    }

    /** Null for a body that is not a JSON object. */
    private JsonNode order(HttpServletRequest request, byte[] body) {
        if (body == null || request.getContentType() == null || !request.getContentType().contains("json")) {
            return null;
        }
        try {
            JsonNode order = mapper.readTree(new String(body, StandardCharsets.UTF_8));
            return order.isObject() ? order : null;
        } catch (JsonProcessingException noJson) {
            return null;
        }
    }

    private void work(JsonNode order, Execution execution, Claim claim) throws InterruptedException {
        if (order.has("gate")) {
            pass(order.get("gate").asLong());
        }
        if (order.has("effect")) {
            effect(order.get("effect").asText(), execution, claim);
        }
        if (order.has("unknown")) {
            claim.unknown(order.get("unknown").path(0).textValue(), order.get("unknown").path(1).textValue());
        }
        if (order.has("commit")) {
            commit(order.get("commit").asText());
        }
        if (order.has("hide_error")) {
            hideError(order.get("hide_error").asText());
        }
        if (runs.merge(execution.toString(), 1, Integer::sum) <= order.path("serialization_failures").asInt()) {
            claims.execute("DO $$BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = 'serialization_failure'; END$$");
        }
        if (order.path("hang").asBoolean()) {
            claim.awaitLoss();
            own.update(INSERT, execution.principal(), execution.key(), "lost");
        }
        if (order.path("nothing_happened").asBoolean()) {
            throw new NothingHappenedException("nothing happened");
        }
        if (order.path("never").asBoolean()) {
            new CountDownLatch(1).await();
        }
        if (order.has("idle")) {
            idle(order.get("idle").asLong());
        }
        if (order.has("stranger")) {
            throw new IllegalStateException("Connection closed", order.get("stranger").asText().equals("code") ? new GatewayException("40004") : null);
        }
        if (order.has("raise")) {
            throw new ResponseStatusException(HttpStatusCode.valueOf(order.get("raise").asInt()), "raised");
        }
        if (order.path("throw").asBoolean()) {
            throw new IllegalStateException("the handler was told to fail");
        }
        if (order.path("exit").asBoolean()) {
            Runtime.getRuntime().halt(3);
        }
    }

    static final Map<String, ConnectionCallback<Object>> FAILURES = Map.of(
            "execute", connection -> connection.createStatement().execute("SELECT 1/0"),
            "query", connection -> connection.createStatement().executeQuery("SELECT 1/0"),
            "prepared", connection -> connection.prepareStatement("SELECT 1/0").execute(),
            "batch", connection -> {
                Statement batch = connection.createStatement();
                batch.addBatch("SELECT 1/0");
                return batch.executeBatch();
            });
    static final Map<String, ConnectionCallback<Object>> COMMITS = Map.of(
            "sql", connection -> connection.createStatement().execute("COMMIT"),
            "driver", connection -> {
                connection.commit();
                return null;
            });

    private void idle(long millis) throws InterruptedException {
        claims.execute("SET LOCAL idle_in_transaction_session_timeout = " + millis);
        Thread.sleep(millis + 1000);
    }

    /** A write by the connection of the claim, which is over by then. */
    private void writeLate(String note, Execution execution, Connection connection) {
        new Thread(() -> {
            try (PreparedStatement statement = sleptAndPrepared(connection)) {
                statement.setString(1, execution.principal());
                statement.setString(2, execution.key());
                statement.setString(3, note);
                statement.execute();
            } catch (SQLException hidden) {
                // It is to change nothing.
            }
            own.update(INSERT, execution.principal(), execution.key(), "tried");
        }).start();
    }

    private static PreparedStatement sleptAndPrepared(Connection connection) throws SQLException {
        LockSupport.parkNanos(300_000_000);
        return connection.prepareStatement(INSERT);
    }

    private void commit(String way) {
        claims.execute(COMMITS.get(way));
    }

    private void hideError(String way) {
        try {
            claims.execute(FAILURES.getOrDefault(way, FAILURES.get("execute")));
        } catch (DataAccessException hidden) {
            return;
        }
    }

    /** Waits for a gate that the suite opens. */
    private void pass(long gate) {
        own.execute((Connection connection) -> {
            for (String function : new String[] {"pg_advisory_lock_shared", "pg_advisory_unlock_shared"}) {
                try (PreparedStatement statement = connection.prepareStatement("SELECT " + function + "(?)")) {
                    statement.setLong(1, gate);
                    statement.execute();
                }
            }
            return null;
        });
    }

    /** A part of the claim's transaction, or a step of a leased claim. */
    private void effect(String note, Execution execution, Claim claim) {
        if (claim != null) {
            claim.stepInTransaction("effect", Void.class, connection -> {
                claims.update(INSERT, execution.principal(), execution.key(), note);
                return null;
            });
        } else if (TransactionSynchronizationManager.isActualTransactionActive()) {
            claims.update(INSERT, execution.principal(), execution.key(), note);
        } else {
            own.update(INSERT, execution.principal(), execution.key(), note);
        }
    }

    void told(String name, Event event) {
        try {
            own.update("INSERT INTO hook (name, scope, key, attempt, outcome) VALUES (?, ?, ?, ?, ?)",
                    name, event.scope(), event.key(), event.attempt(), event.outcome());
        } catch (DataAccessException away) {
            return;
        }
    }

    private static final class GatewayException extends Exception {
        final String code;

        GatewayException(String code) {
            super("code " + code);
            this.code = code;
        }
    }
}
