package idempotency.postgres;

import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

/** The calls of the statements, with their arguments. */
final class Statements {
    private Statements() {}

    /** A transactional claim must end before COMMIT, and has no lease. */
    static Claimed begin(Connection connection, Request request, Identity identity, String holder, boolean transactional)
            throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(Contract.BEGIN)) {
            new Places(statement).text(request.key).text(identity.json()).bytes(identity.digest())
                    .text(identity.method()).text(identity.target()).array(identity.exclude())
                    .text(request.scope).text(request.principal)
                    .span(request.ttl).span(transactional ? null : request.lease).span(request.wait).text(holder)
                    .flag(transactional).span(request.derive);
            try (ResultSet row = statement.executeQuery()) {
                row.next();
                return claimed(row);
            }
        }
    }

    private static Claimed claimed(ResultSet row) throws SQLException {
        return new Claimed(row.getString("outcome"), row.getString("key"), row.getObject("token", Long.class), row.getInt("attempt"), row.getString("status"), row.getObject("status_code", Integer.class),
                row.getString("headers"), row.getBytes("body"), row.getBoolean("body_omitted"), row.getString("error"),
                row.getString("recovery_point"), row.getString("state"), row.getObject("retry_after", Double.class));
    }

    /** A record that is due, and the claim on it. */
    record Due(String scope, String principal, Claimed claimed, String operation, String method, String path, String request) {}

    static List<Due> due(Connection connection, String scope, int most, Duration lease, String holder) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(Contract.DUE)) {
            new Places(statement).text(scope).number((long) most).span(lease).text(holder);
            try (ResultSet row = statement.executeQuery()) {
                List<Due> due = new ArrayList<>();
                while (row.next()) {
                    due.add(due(row));
                }
                return due;
            }
        }
    }

    private static Due due(ResultSet row) throws SQLException {
        Claimed claimed = new Claimed(Outcome.EXECUTE, row.getString("key"), row.getLong("token"), row.getInt("attempt"), null, null,
                null, null, false, row.getString("error"), row.getString("recovery_point"), row.getString("state"), null);
        return new Due(row.getString("scope"), row.getString("principal"), claimed, row.getString("operation"),
                row.getString("method"), row.getString("path"), row.getString("request"));
    }

    /**
     * Whether this call has stored the answer; null stores none. The token is null in the transaction that has begun
     * the claim.
     */
    static boolean complete(Connection connection, Request request, Answer answer, Long token) throws SQLException {
        Answer stored = answer == null ? new Answer(0, Answer.noHeaders(), null) : answer;
        return "t".equals(run(connection, Contract.COMPLETE, places -> places.text(request.key)
                .number(answer == null ? null : (long) answer.status()).bytes(stored.body())
                .text(stored.storedHeaders()).text(request.scope).text(request.principal).number(token)));
    }

    /** Uncertain: the work may have had its effect, and the policy may forbid to run it again. */
    static void fail(Connection connection, Request request, String reason, Long token, boolean uncertain)
            throws SQLException {
        run(connection, Contract.FAIL, places -> places.text(request.key).text(reason).text(request.scope).text(request.principal)
                .number(token).flag(uncertain));
    }

    static void unknown(Connection connection, Request request, String error, String reference, Long token)
            throws SQLException {
        run(connection, Contract.UNKNOWN, places -> places.text(request.key).text(error).text(reference).text(request.scope)
                .text(request.principal).number(token));
    }

    static void extend(Connection connection, Request request, Long token) throws SQLException {
        run(connection, Contract.EXTEND, places -> places.text(request.key).number(token).text(request.scope).text(request.principal));
    }

    static void checkpoint(Connection connection, Request request, String point, String state, Long token)
            throws SQLException {
        run(connection, Contract.CHECKPOINT, places -> places.text(request.key).text(point).text(state).text(request.scope)
                .text(request.principal).number(token));
    }

    static boolean once(Connection connection, String id, String scope, String principal) throws SQLException {
        return "t".equals(run(connection, Contract.ONCE, places -> places.text(id).text(scope).text(principal)));
    }

    static String problem(Connection connection, String word) throws SQLException {
        return run(connection, Contract.PROBLEM, places -> places.text(word));
    }

    private interface Binding {
        void bind(Places places) throws SQLException;
    }

    private static String run(Connection connection, String sql, Binding binding) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            binding.bind(new Places(statement));
            try (ResultSet row = statement.executeQuery()) {
                row.next();
                return row.getString(1);
            }
        }
    }

    /** The parameters of a statement, in order. */
    private static final class Places {
        private final PreparedStatement statement;
        private int place;

        Places(PreparedStatement statement) {
            this.statement = statement;
        }

        Places text(String value) throws SQLException {
            statement.setString(++place, value);
            return this;
        }

        Places bytes(byte[] value) throws SQLException {
            statement.setBytes(++place, value);
            return this;
        }

        Places number(Long value) throws SQLException {
            statement.setObject(++place, value, Types.BIGINT);
            return this;
        }

        Places flag(boolean value) throws SQLException {
            statement.setBoolean(++place, value);
            return this;
        }

        Places span(Duration value) throws SQLException {
            return number(value == null || value.isZero() || value.isNegative() ? null : Math.max(value.toMillis(), 1));
        }

        Places array(List<String> values) throws SQLException {
            return text(values.isEmpty() ? null : values.stream()
                    .map(value -> '"' + value.replace("\\", "\\\\").replace("\"", "\\\"") + '"')
                    .collect(Collectors.joining(",", "{", "}")));
        }
    }

    /** Without characters that the database refuses in a reason: control characters and lone surrogates. */
    static String sanitized(String reason) {
        String text = reason == null ? "" : new String(reason.getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
        return text.replaceAll("\\p{Cntrl}", " ");
    }
}
