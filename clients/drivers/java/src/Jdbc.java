import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.HashMap;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import javax.sql.DataSource;
import org.postgresql.ds.PGSimpleDataSource;
import org.postgresql.util.DriverInfo;
import org.postgresql.util.PGInterval;
import org.postgresql.util.PGobject;

/** JDBC, with pgjdbc. */
class Jdbc implements Driver {
    private final DataSource source = Main.database();
    private final Connection connection = source.getConnection(); // in autocommit

    Jdbc() throws SQLException {}

    @Override
    public String version() {
        return "pgjdbc " + DriverInfo.DRIVER_VERSION;
    }

    @Override
    public Answer pay(String key, String tenant, String request) throws SQLException {
        return payment(key, tenant, request);
    }

    // page: transaction
    Answer payment(String key, String tenant, String request) throws SQLException {
        try (Connection connection = source.getConnection()) {
            connection.setAutoCommit(false); // closed without a commit, it rolls back
            Answer answer;
            try (PreparedStatement begin = connection.prepareStatement("""
                    SELECT outcome = 'execute' AS execute, coalesce((problem ->> 'status')::integer, status_code) AS status,
                           headers, coalesce(convert_to(problem::text, 'UTF8'), body) AS body, problem IS NOT NULL AS is_problem
                      FROM idem_begin(?, request => CAST(? AS jsonb), scope => 'pay', principal => ?) AS claim,
                           idem_problem(claim) AS problem""")) {
                begin.setString(1, key);
                begin.setString(2, request);
                begin.setString(3, tenant);
                ResultSet claim = begin.executeQuery();
                claim.next();
                if (claim.getBoolean("execute")) {
                    answer = new Answer(201, Answer.JSON, charge(connection, request));
                    complete(connection, key, tenant, answer);
                } else {
                    String headers = claim.getBoolean("is_problem") ? Answer.PROBLEM : claim.getString("headers");
                    answer = new Answer(claim.getInt("status"), headers, claim.getBytes("body"));
                }
            }
            connection.commit();
            return answer;
        }
    }

    static void complete(Connection connection, String key, String tenant, Answer answer) throws SQLException {
        try (PreparedStatement complete = connection.prepareStatement(
                "SELECT idem_complete(?, ?, ?, CAST(? AS jsonb), scope => 'pay', principal => ?)")) {
            complete.setString(1, key);
            complete.setInt(2, answer.status());
            complete.setBytes(3, answer.body());
            complete.setString(4, answer.headers());
            complete.setString(5, tenant);
            complete.executeQuery();
        }
    }
    // page: end

    private static byte[] charge(Connection connection, String request) throws SQLException {
        try (PreparedStatement insert = connection.prepareStatement(
                "INSERT INTO payment (amount) VALUES ((CAST(? AS jsonb) ->> 'amount')::integer) RETURNING id")) {
            insert.setString(1, request);
            ResultSet payment = insert.executeQuery();
            payment.next();
            return "{\"id\": %d}".formatted(payment.getLong("id")).getBytes(StandardCharsets.UTF_8);
        }
    }

    interface Binding {
        void to(PreparedStatement statement) throws SQLException;
    }

    /** Its `key` is the first parameter. */
    private static Map<String, Object> run(Connection connection, String sql, String key, Binding binding) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            if (key != null) statement.setString(1, key);
            binding.to(statement);
            ResultSet result = statement.executeQuery();
            Map<String, Object> row = new LinkedHashMap<>();
            if (result.next()) {
                for (int i = 1; i <= result.getMetaData().getColumnCount(); i++) {
                    row.put(result.getMetaData().getColumnName(i), result.getObject(i));
                }
            }
            return row;
        }
    }

    @Override
    public Map<String, Object> row(String sql) throws SQLException {
        return run(connection, sql, null, statement -> {});
    }

    private Tries.Step begin(String argument, Binding binding) {
        return key -> run(connection, "SELECT outcome FROM idem_begin(?, scope => 'tried', " + argument + ")", key, binding);
    }

    private Tries.WithToken complete(String body, Binding binding) {
        return (key, token) ->
            run(connection, "SELECT idem_complete(?, 201, " + body + ", scope => 'tried', token => " + token + ")", key, binding);
    }

    @Override
    public void tries(Tries tries) throws Exception {
        whatIsAsked(tries);
        whatIsAnswered(tries);
        claims(tries);
        transactions(tries);
    }

    private void whatIsAsked(Tries tries) throws Exception {
        String uuid = UUID.randomUUID().toString();
        tries.add("key", "`?` with `setString`", key ->
            run(connection, "SELECT key FROM idem_begin(?, scope => 'tried')", uuid, s -> {}).get("key").equals(uuid) ? "works" : "another key");
        tries.add("key", "`?` with `setObject(1, UUID)`", key -> {
            run(connection, "SELECT idem_begin(?, scope => 'tried')", null, s -> s.setObject(1, UUID.randomUUID()));
            return "works";
        });

        tries.keys("`?` with `setArray(1, connection.createArrayOf(\"text\", keys))`", (scope, keys) ->
            each(scope, s -> s.setArray(1, connection.createArrayOf("text", keys))));
        tries.add("keys", "`?` with `setObject(1, keys)` of a `String[]`", key ->
            each(key, s -> s.setObject(1, new String[] {"b", "a", "b"})).equals(List.of("b", "a")) ? "works" : "other keys");
        tries.add("keys", "`?` with `setObject(1, keys)` of a `List`", key ->
            each(key, s -> s.setObject(1, List.of("b", "a", "b"))).equals(List.of("b", "a")) ? "works" : "other keys");

        String json = "{\"amount\": 5, \"path\": \"C:\\\\dir\"}";
        tries.request("`CAST(? AS jsonb)` with `setString`", json, begin("request => CAST(? AS jsonb)", s -> s.setString(2, json)));
        tries.request("`?::jsonb` with `setString`", json, begin("request => ?::jsonb", s -> s.setString(2, json)));
        tries.request("`?` with `setObject(2, json, Types.OTHER)`", json, begin("request => ?", s -> s.setObject(2, json, Types.OTHER)));
        tries.request("`?` with a `PGobject` of type `jsonb`", json, begin("request => ?", s -> s.setObject(2, jsonb(json))));
        tries.request("`?` with `setString`", json, begin("request => ?", s -> s.setString(2, json)));
        tries.request("`?` with a `PGobject` of type `json`", json, begin("request => ?", s -> {
            PGobject object = jsonb(json);
            object.setType("json");
            s.setObject(2, object);
        }));
        tries.request("`CAST(? AS jsonb)` with `setBytes`", json,
            begin("request => CAST(? AS jsonb)", s -> s.setBytes(2, json.getBytes(StandardCharsets.UTF_8))));
        tries.request("`CAST(? AS jsonb)` with `setString(null)`", json, begin("request => CAST(? AS jsonb)", s -> s.setString(2, null)));

        tries.lease("`? * interval '1 ms'` with `setLong(30000)`", begin("lease => ? * interval '1 ms'", s -> s.setLong(2, 30000)));
        tries.lease("`CAST(? AS interval)` with `setString(\"30 s\")`", begin("lease => CAST(? AS interval)", s -> s.setString(2, "30 s")));
        tries.lease("`?` with `setObject(new PGInterval(0, 0, 0, 0, 0, 30))`", begin("lease => ?", s -> s.setObject(2, new PGInterval(0, 0, 0, 0, 0, 30))));
        tries.lease("`CAST(? AS interval)` with `setString(\"30000\")`", begin("lease => CAST(? AS interval)", s -> s.setString(2, "30000")));
        tries.lease("`?` with `setString(\"30 s\")`", begin("lease => ?", s -> s.setString(2, "30 s")));
        tries.lease("`?` with `setLong(30000)`", begin("lease => ?", s -> s.setLong(2, 30000)));
        tries.lease("`?` with `setObject(Duration.ofSeconds(30))`", begin("lease => ?", s -> s.setObject(2, Duration.ofSeconds(30))));

        tries.add("principal", "`?` with `setString(null)`", key -> {
            begin("principal => ?", s -> s.setString(2, null)).run(key);
            return "works";
        });
    }

    private List<String> each(String scope, Binding binding) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("SELECT idem_once_each(?, scope => ?)")) {
            binding.to(statement);
            statement.setString(2, scope);
            ResultSet result = statement.executeQuery();
            List<String> keys = new ArrayList<>();
            while (result.next()) keys.add(result.getString(1));
            return keys;
        }
    }

    private static PGobject jsonb(String json) throws SQLException {
        PGobject object = new PGobject();
        object.setType("jsonb");
        object.setValue(json);
        return object;
    }

    private void whatIsAnswered(Tries tries) throws Exception {
        byte[] bytes = {0, (byte) 255, '\\', '\''};
        String path = "{\"path\":\"C:\\\\dir\"}";
        byte[] pathBytes = path.getBytes(StandardCharsets.UTF_8);
        tries.body("`?` with `setBytes`", bytes, complete("?", s -> s.setBytes(2, bytes)));
        tries.body("`?` with `setString`", pathBytes, complete("?", s -> s.setString(2, path)));
        tries.body("`CAST(? AS bytea)` with `setString` of `" + path + "`", pathBytes, complete("CAST(? AS bytea)", s -> s.setString(2, path)));
        tries.body("`?` with a `PGobject` of type `jsonb` of `" + path + "`", pathBytes, complete("?", s -> s.setObject(2, jsonb(path))));

        String headers = "{\"X-A\": [\"1\", \"2\"]}";
        tries.headers("`CAST(? AS jsonb)` with `setString`", complete("''::text, CAST(? AS jsonb)", s -> s.setString(2, headers)));
        tries.headers("`?` with `setString`", complete("''::text, ?", s -> s.setString(2, headers)));
        tries.headers("`CAST(? AS jsonb)` with `setString` of `{\"Content-Length\": 12}`",
            complete("''::text, CAST(? AS jsonb)", s -> s.setString(2, "{\"Content-Length\": 12}")));
        tries.headers("`?` with `setObject(Map)`", complete("''::text, ?", s -> s.setObject(2, Map.of("X-A", List.of("1", "2")))));
    }

    private void claims(Tries tries) throws Exception {
        tries.add("token", "`getLong`, then `setLong`", key -> {
            long token = (Long) run(connection, "SELECT token FROM idem_begin(?, scope => 'tried', lease => '1 minute')", key, s -> {}).get("token");
            Object done = run(connection, "SELECT idem_complete(?, 201, scope => 'tried', token => ?)", key, s -> s.setLong(2, token)).get("idem_complete");
            return done.equals(true) ? "works" : "returns " + done;
        });
        tries.add("token", "`?` with `setString`", key -> {
            run(connection, "SELECT idem_complete(?, 201, scope => 'tried', token => ?)", key, s -> s.setString(2, "" + tries.claim(key)));
            return "works";
        });
        tries.add("token", "`getLong` where the outcome is not `execute`", key -> {
            tries.claim(key);
            try (PreparedStatement begin = connection.prepareStatement("SELECT * FROM idem_begin(?, scope => 'tried')")) {
                begin.setString(1, key);
                ResultSet claim = begin.executeQuery();
                claim.next();
                return "%s, and `wasNull()` is %s".formatted(claim.getLong("token"), claim.wasNull());
            }
        });
        tries.add("record", "`SELECT idem_begin(...)`", key ->
            "a `" + Main.typeOf(run(connection, "SELECT idem_begin(?, scope => 'tried')", key, s -> {}).get("idem_begin").getClass()) + "`");
        tries.add("times", "`getObject(\"lease_until\", OffsetDateTime.class)`", key -> {
            tries.claim(key);
            try (PreparedStatement get = connection.prepareStatement("SELECT * FROM idem_get(?, 'tried')")) {
                get.setString(1, key);
                ResultSet record = get.executeQuery();
                record.next();
                return record.getObject("lease_until", OffsetDateTime.class).isAfter(OffsetDateTime.now()) ? "works" : "another time";
            }
        });
        tries.add("operators", "`state ? 'charge'`", key -> {
            run(connection, "SELECT state ? 'charge' AS has FROM idem_begin(?, scope => 'tried')", null, s -> s.setString(1, key));
            return "works";
        });
        tries.add("operators", "`state ?? 'charge'`", key -> {
            Map<String, Object> claim = run(connection, "SELECT outcome, state ?? 'charge' AS has FROM idem_begin(?, scope => 'tried')", key, s -> {});
            return claim.get("outcome").equals("execute") ? "works" : claim.toString();
        });
        tries.add("error", "`e.getSQLState()` with a wrong token", key -> {
            tries.claim(key);
            try {
                run(connection, "SELECT idem_complete(?, 201, scope => 'tried', token => 1)", key, s -> {});
                return "works";
            } catch (SQLException e) {
                return "`" + e.getSQLState() + "`";
            }
        });
    }

    private void transactions(Tries tries) throws Exception {
        tries.add("autocommit", "`idem_begin`, then `idem_complete` without a token, without `setAutoCommit(false)`", key -> {
            begin("lease => '1 minute'", s -> {}).run(key);
            String what = "works";
            try {
                run(connection, "SELECT idem_complete(?, 201, scope => 'tried')", key, s -> {});
            } catch (SQLException e) {
                what = Tries.nameOf(e);
            }
            return what + ", and the key stays `" + tries.status(key) + "`";
        });
        tries.add("commit", "an exception that is caught inside of the transaction, which then ends well", key -> {
            try (Connection own = source.getConnection()) {
                own.setAutoCommit(false);
                run(own, "SELECT outcome FROM idem_begin(?, scope => 'tried')", key, s -> {});
                try {
                    run(own, "SELECT 1 / 0", null, s -> {});
                } catch (SQLException e) {
                    // that is the try
                }
                own.commit();
            }
            return "no error, and " + (tries.status(key) == null ? "nothing is committed" : "it is committed");
        });
        tries.add("prepared", "the same statement ten times", key -> tenTimes(Main.database()));
        tries.add("prepared", "the same, with `prepareThreshold=0`", key -> {
            PGSimpleDataSource other = Main.database();
            other.setPrepareThreshold(0);
            return tenTimes(other);
        });
        tries.pooled("", pooler(5));
        tries.pooled(", `prepareThreshold=0`", pooler(0));
    }

    private static Tries.Connect pooler(int threshold) {
        PGSimpleDataSource pooler = Main.database();
        pooler.setServerNames(new String[] {"127.0.0.1"});
        pooler.setPortNumbers(new int[] {Tries.poolerPort()});
        pooler.setPrepareThreshold(threshold);
        return () -> {
            Connection client = pooler.getConnection();
            return new Tries.Pooled() {
                @Override
                public void begin() throws SQLException {
                    client.setAutoCommit(false);
                }

                @Override
                public Object claim(String scope) throws SQLException {
                    return run(client, "SELECT scope FROM idem_begin(?, scope => '" + scope + "')", "key", s -> {}).get("scope");
                }

                @Override
                public void commit() throws SQLException {
                    client.commit();
                }

                @Override
                public void close() throws SQLException {
                    client.close();
                }
            };
        };
    }

    private static String tenTimes(DataSource source) throws SQLException {
        try (Connection own = source.getConnection()) {
            for (int i = 0; i < 10; i++) {
                run(own, "SELECT outcome FROM idem_begin(?, scope => 'ten times')", source.hashCode() + " " + i, s -> {});
            }
            return Tries.prepared((Long) run(own, "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT outcome%''ten times''%'",
                null, s -> {}).get("count"));
        }
    }

    @Override
    public void close() throws SQLException {
        connection.close();
    }
}
