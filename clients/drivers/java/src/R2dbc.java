import io.r2dbc.postgresql.PostgresqlConnectionConfiguration;
import io.r2dbc.postgresql.PostgresqlConnectionFactory;
import io.r2dbc.postgresql.codec.Interval;
import io.r2dbc.postgresql.codec.Json;
import io.r2dbc.spi.Connection;
import io.r2dbc.spi.ConnectionFactory;
import io.r2dbc.spi.R2dbcException;
import io.r2dbc.spi.Row;
import io.r2dbc.spi.Statement;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.Function;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** R2DBC, with r2dbc-postgresql. */
class R2dbc implements Driver {
    private final ConnectionFactory factory = new PostgresqlConnectionFactory(configuration().build());

    private static PostgresqlConnectionConfiguration.Builder configuration() {
        return PostgresqlConnectionConfiguration.builder().host(System.getenv("PGHOST"))
            .port(Integer.parseInt(System.getenv("PGPORT"))).username(System.getenv("PGUSER")).database(System.getenv("PGDATABASE"));
    }

    @Override
    public String version() {
        String jar = PostgresqlConnectionFactory.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        return jar.replaceAll(".*/(r2dbc-postgresql)-(.*)\\.jar", "$1 $2");
    }

    @Override
    public Answer pay(String key, String tenant, String request) {
        return payment(key, tenant, request).block();
    }

    // page: transaction
    Mono<Answer> payment(String key, String tenant, String request) {
        return Mono.usingWhen(factory.create(), connection -> Mono.from(connection.beginTransaction())
                .then(begin(connection, key, tenant, request))
                .flatMap(answer -> Mono.from(connection.commitTransaction()).thenReturn(answer)),
            Connection::close); // without a commit, that rolls back
    }

    private Mono<Answer> begin(Connection connection, String key, String tenant, String request) {
        return Mono.from(connection.createStatement("""
                SELECT outcome = 'execute' AS execute, coalesce((problem ->> 'status')::integer, status_code) AS status,
                       headers, coalesce(convert_to(problem::text, 'UTF8'), body) AS body, problem IS NOT NULL AS is_problem
                  FROM idem_begin($1, request => $2::jsonb, scope => 'pay', principal => $3) AS claim,
                       idem_problem(claim) AS problem""")
                .bind("$1", key).bind("$2", request).bind("$3", tenant).execute())
            .flatMap(result -> Mono.from(result.map((row, about) -> row.get("execute", Boolean.class)
                ? charge(connection, request).flatMap(answer -> complete(connection, key, tenant, answer))
                : Mono.just(new Answer(row.get("status", Integer.class),
                    row.get("is_problem", Boolean.class) ? Answer.PROBLEM : row.get("headers", String.class),
                    row.get("body", byte[].class))))))
            .flatMap(answer -> answer); // not before the rows have been read
    }

    private Mono<Answer> complete(Connection connection, String key, String tenant, Answer answer) {
        return Mono.from(connection.createStatement("SELECT idem_complete($1, $2, $3, $4::jsonb, scope => 'pay', principal => $5)")
                .bind("$1", key).bind("$2", answer.status()).bind("$3", answer.body()).bind("$4", answer.headers()).bind("$5", tenant).execute())
            .flatMap(result -> Mono.from(result.map((row, about) -> answer)));
    }
    // page: end

    private static Mono<Answer> charge(Connection connection, String request) {
        return Mono.from(connection.createStatement(
                "INSERT INTO payment (amount) VALUES (($1::jsonb ->> 'amount')::integer) RETURNING id").bind("$1", request).execute())
            .flatMap(result -> Mono.from(result.map((row, about) ->
                new Answer(201, Answer.JSON, "{\"id\": %d}".formatted(row.get("id", Long.class)).getBytes(StandardCharsets.UTF_8)))));
    }

    interface Binding {
        Statement to(Statement statement);
    }

    private static Mono<Map<String, Object>> run(Connection connection, String sql, String key, Binding binding) {
        return Mono.defer(() -> {
            Statement statement = connection.createStatement(sql);
            if (key != null) statement.bind("$1", key);
            return Mono.from(binding.to(statement).execute()).flatMap(result -> Mono.from(result.map(row -> values((Row) row))));
        });
    }

    private static Map<String, Object> values(Row row) {
        Map<String, Object> values = new LinkedHashMap<>();
        row.getMetadata().getColumnMetadatas().forEach(column -> values.put(column.getName(), row.get(column.getName())));
        return values;
    }

    /** On a separate connection. */
    private static <T> T on(ConnectionFactory factory, Function<Connection, Mono<T>> work) {
        return Mono.usingWhen(factory.create(), work, Connection::close).block();
    }

    private Map<String, Object> run(String sql, String key, Binding binding) {
        return on(factory, connection -> run(connection, sql, key, binding));
    }

    @Override
    public Map<String, Object> row(String sql) {
        return run(sql, null, statement -> statement);
    }

    private Tries.Step begin(String argument, Binding binding) {
        return key -> run("SELECT outcome FROM idem_begin($1, scope => 'tried', " + argument + ")", key, binding);
    }

    private Tries.WithToken complete(String body, Binding binding) {
        return (key, token) -> run("SELECT idem_complete($1, 201, " + body + ", scope => 'tried', token => " + token + ")", key, binding);
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
        tries.add("key", "`$1` with a `String`", key ->
            run("SELECT key FROM idem_begin($1, scope => 'tried')", uuid, s -> s).get("key").equals(uuid) ? "works" : "another key");
        tries.add("key", "`$1` with a `UUID`", key -> {
            run("SELECT outcome FROM idem_begin($1, scope => 'tried')", null, s -> s.bind("$1", UUID.randomUUID()));
            return "works";
        });

        tries.keys("`$1` with a `String[]`", (scope, keys) -> each(scope, s -> s.bind("$1", keys)));
        tries.add("keys", "`$1` with a `List`", key ->
            each(key, s -> s.bind("$1", List.of("b", "a", "b"))).equals(List.of("b", "a")) ? "works" : "other keys");

        String json = "{\"amount\": 5, \"path\": \"C:\\\\dir\"}";
        tries.request("`$2::jsonb` with a `String`", json, begin("request => $2::jsonb", s -> s.bind("$2", json)));
        tries.request("`$2` with `Json.of(string)`", json, begin("request => $2", s -> s.bind("$2", Json.of(json))));
        tries.request("`$2::jsonb` with `Json.of(string)`", json, begin("request => $2::jsonb", s -> s.bind("$2", Json.of(json))));
        tries.request("`$2` with a `String`", json, begin("request => $2", s -> s.bind("$2", json)));
        tries.request("`$2::jsonb` with a `byte[]`", json,
            begin("request => $2::jsonb", s -> s.bind("$2", json.getBytes(StandardCharsets.UTF_8))));
        tries.request("`$2::jsonb` with `bindNull(\"$2\", String.class)`", json,
            begin("request => $2::jsonb", s -> s.bindNull("$2", String.class)));
        tries.request("`$2::jsonb` with a `Map`", json, begin("request => $2::jsonb", s -> s.bind("$2", Map.of("amount", 5))));

        tries.lease("`$2 * interval '1 ms'` with `30000L`", begin("lease => $2 * interval '1 ms'", s -> s.bind("$2", 30000L)));
        tries.lease("`$2::interval` with `\"30 s\"`", begin("lease => $2::interval", s -> s.bind("$2", "30 s")));
        tries.lease("`$2` with `Interval.of(Duration.ofSeconds(30))`", begin("lease => $2", s -> s.bind("$2", Interval.of(Duration.ofSeconds(30)))));
        tries.lease("`$2` with `Duration.ofSeconds(30)`", begin("lease => $2", s -> s.bind("$2", Duration.ofSeconds(30))));
        tries.lease("`$2::interval` with `\"30000\"`", begin("lease => $2::interval", s -> s.bind("$2", "30000")));
        tries.lease("`$2` with `\"30 s\"`", begin("lease => $2", s -> s.bind("$2", "30 s")));
        tries.lease("`$2` with `30000L`", begin("lease => $2", s -> s.bind("$2", 30000L)));

        tries.add("principal", "`bindNull(\"$2\", String.class)`", key -> {
            begin("principal => $2", s -> s.bindNull("$2", String.class)).run(key);
            return "works";
        });
        tries.add("principal", "`bind(\"$2\", null)`", key -> {
            begin("principal => $2", s -> s.bind("$2", null)).run(key);
            return "works";
        });
    }

    private List<String> each(String scope, Binding binding) {
        return on(factory, connection -> {
            Statement each = connection.createStatement("SELECT idem_once_each($1, scope => $2)").bind("$2", scope);
            return Flux.from(binding.to(each).execute()).flatMap(result -> result.map(row -> row.get(0, String.class))).collectList();
        });
    }

    private void whatIsAnswered(Tries tries) throws Exception {
        byte[] bytes = {0, (byte) 255, '\\', '\''};
        String path = "{\"path\":\"C:\\\\dir\"}";
        byte[] pathBytes = path.getBytes(StandardCharsets.UTF_8);
        tries.body("`$3` with a `byte[]`", bytes, complete("$2", s -> s.bind("$2", bytes)));
        tries.body("`$3` with a `ByteBuffer`", bytes, complete("$2", s -> s.bind("$2", ByteBuffer.wrap(bytes))));
        tries.body("`$3` with a `String`", pathBytes, complete("$2", s -> s.bind("$2", path)));
        tries.body("`$3::bytea` with the `String` `" + path + "`", pathBytes, complete("$2::bytea", s -> s.bind("$2", path)));
        tries.body("`$3` with `Json.of` of `" + path + "`", pathBytes, complete("$2", s -> s.bind("$2", Json.of(path))));

        String headers = "{\"X-A\": [\"1\", \"2\"]}";
        tries.headers("`$4::jsonb` with a `String`", complete("''::text, $2::jsonb", s -> s.bind("$2", headers)));
        tries.headers("`$4` with `Json.of(string)`", complete("''::text, $2", s -> s.bind("$2", Json.of(headers))));
        tries.headers("`$4` with a `String`", complete("''::text, $2", s -> s.bind("$2", headers)));
        tries.headers("`$4::jsonb` with `{\"Content-Length\": 12}`",
            complete("''::text, $2::jsonb", s -> s.bind("$2", "{\"Content-Length\": 12}")));
    }

    private void claims(Tries tries) throws Exception {
        tries.add("token", "`row.get(\"token\", Long.class)`, then `bind`", key -> {
            Object token = run("SELECT token FROM idem_begin($1, scope => 'tried', lease => '1 minute')", key, s -> s).get("token");
            Object done = run("SELECT idem_complete($1, 201, scope => 'tried', token => $2)", key, s -> s.bind("$2", token)).get("idem_complete");
            return done.equals(true) ? "works" : "returns " + done;
        });
        tries.add("token", "`$2` with a `String`", key -> {
            String token = "" + tries.claim(key);
            run("SELECT idem_complete($1, 201, scope => 'tried', token => $2)", key, s -> s.bind("$2", token));
            return "works";
        });
        tries.add("record", "`SELECT idem_begin(...)`", key ->
            "a `" + Main.typeOf(run("SELECT idem_begin($1, scope => 'tried')", key, s -> s).get("idem_begin").getClass()) + "`");
        tries.add("error", "`e.getSqlState()` with a wrong token", key -> {
            tries.claim(key);
            try {
                run("SELECT idem_complete($1, 201, scope => 'tried', token => 1)", key, s -> s);
                return "works";
            } catch (R2dbcException e) {
                return "`" + e.getSqlState() + "`";
            }
        });
        tries.add("subscribe", "`statement.execute()` without a subscriber", key -> on(factory, connection -> {
            connection.createStatement("SELECT idem_begin($1, scope => 'tried')").bind("$1", key).execute();
            return Mono.fromCallable(() -> tries.status(key) == null ? "nothing is claimed" : "works");
        }));
    }

    private void transactions(Tries tries) throws Exception {
        tries.add("autocommit", "`idem_begin`, then `idem_complete` without a token, without `beginTransaction`", key -> {
            begin("lease => '1 minute'", s -> s).run(key);
            String what = "works";
            try {
                run("SELECT idem_complete($1, 201, scope => 'tried')", key, s -> s);
            } catch (R2dbcException e) {
                what = Tries.nameOf(e);
            }
            return what + ", and the key stays `" + tries.status(key) + "`";
        });
        tries.add("commit", "an error that is resumed from inside of the transaction, which then ends well", key -> {
            on(factory, connection -> Mono.from(connection.beginTransaction())
                .then(run(connection, "SELECT outcome FROM idem_begin($1, scope => 'tried')", key, s -> s))
                .then(run(connection, "SELECT 1 / 0", null, s -> s).onErrorResume(e -> Mono.empty()))
                .then(Mono.from(connection.commitTransaction())));
            return "no error, and " + (tries.status(key) == null ? "nothing is committed" : "it is committed");
        });
        tries.add("prepared", "the same statement ten times", key -> tenTimes(factory, "named"));
        tries.add("prepared", "the same, with `preparedStatementCacheQueries(0)`", key ->
            tenTimes(new PostgresqlConnectionFactory(configuration().preparedStatementCacheQueries(0).build()), "unnamed"));
        tries.pooled("", pooler(-1));
        tries.pooled(", `preparedStatementCacheQueries(0)`", pooler(0));
    }

    private static Tries.Connect pooler(int queries) {
        ConnectionFactory pooler = new PostgresqlConnectionFactory(
            configuration().host("127.0.0.1").port(Tries.poolerPort()).preparedStatementCacheQueries(queries).build());
        return () -> {
            Connection client = Mono.from(pooler.create()).block();
            return new Tries.Pooled() {
                @Override
                public void begin() {
                    Mono.from(client.beginTransaction()).block();
                }

                @Override
                public Object claim(String scope) {
                    return run(client, "SELECT scope FROM idem_begin($1, scope => '" + scope + "')", "key", s -> s).block().get("scope");
                }

                @Override
                public void commit() {
                    Mono.from(client.commitTransaction()).block();
                }

                @Override
                public void close() {
                    Mono.from(client.close()).block();
                }
            };
        };
    }

    private static String tenTimes(ConnectionFactory factory, String key) {
        return on(factory, connection -> {
            Mono<?> all = Mono.empty();
            for (int i = 0; i < 10; i++) {
                all = all.then(run(connection, "SELECT outcome FROM idem_begin($1, scope => 'ten times')", key + i, s -> s));
            }
            return all.then(run(connection, "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT outcome%''ten times''%'", null, s -> s))
                .map(row -> Tries.prepared((Long) row.get("count")));
        });
    }

    @Override
    public void close() {}
}
