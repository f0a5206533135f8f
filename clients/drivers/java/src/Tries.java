import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Arrays;

/** The statements and their results; `admin` shows the effects of the driver. */
class Tries {
    final List<Map<String, String>> rows = new ArrayList<>();
    private final Connection admin;
    private int keys;

    Tries(Connection admin) {
        this.admin = admin;
    }

    interface Try {
        String run(String key) throws Exception;
    }

    interface Step {
        void run(String key) throws Exception;
    }

    interface WithToken {
        void run(String key, long token) throws Exception;
    }

    void add(String about, String write, Try work) throws Exception {
        String gives;
        try {
            gives = work.run("tried " + ++keys);
        } catch (Exception e) {
            gives = nameOf(e);
        }
        rows.add(Map.of("about", about, "write", write, "gives", gives));
    }

    static String nameOf(Throwable e) {
        String state = e instanceof SQLException jdbc ? jdbc.getSQLState()
            : e instanceof io.r2dbc.spi.R2dbcException r2dbc ? r2dbc.getSqlState() : null;
        return state != null ? state : "`" + e.getClass().getSimpleName() + "`";
    }

    /** The first column of the first row. */
    String look(String sql, String... values) throws SQLException {
        try (PreparedStatement statement = admin.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) statement.setString(i + 1, values[i]);
            try (ResultSet result = statement.executeQuery()) {
                return result.next() ? result.getString(1) : null;
            }
        }
    }

    void request(String write, String wanted, Step begin) throws Exception {
        add("request", write, key -> {
            begin.run(key);
            String same = look("SELECT fingerprint = idem_fingerprint(CAST(? AS jsonb)) FROM idempotency.records "
                + "WHERE scope = 'tried' AND key = ?", wanted, key);
            return "t".equals(same) ? "works"
                : "the request is `" + look("SELECT request FROM idempotency.records WHERE scope = 'tried' AND key = ?", key) + "`";
        });
    }

    interface Each {
        List<String> run(String scope, String[] keys) throws Exception;
    }

    /** `each` is idem_once_each, and its rows. */
    void keys(String write, Each each) throws Exception {
        keys(write, each, List.of("b", "a"), "b", "a", "b");
        keys("the same, empty", each, List.of());
        keys("the same, with a `null` in it", each, List.of("b"), "b", null);
    }

    private void keys(String write, Each each, List<String> wanted, String... keys) throws Exception {
        add("keys", write, key -> {
            List<String> found = each.run(key, keys);
            return found.equals(wanted) ? "works" : "`" + found + "`";
        });
    }

    void body(String write, byte[] wanted, WithToken complete) throws Exception {
        add("body", write, key -> {
            complete.run(key, claim(key));
            try (PreparedStatement statement = admin.prepareStatement("SELECT body FROM idem_get(?, 'tried')")) {
                statement.setString(1, key);
                ResultSet result = statement.executeQuery();
                result.next();
                byte[] body = result.getBytes(1);
                return Arrays.equals(body, wanted) ? "works" : "the body is `" + new String(body) + "`";
            }
        });
    }

    void headers(String write, WithToken complete) throws Exception {
        add("headers", write, key -> {
            complete.run(key, claim(key));
            String headers = look("SELECT headers FROM idem_get(?, 'tried')", key);
            return headers.equals("{\"X-A\": [\"1\", \"2\"]}") ? "works" : "the headers are `" + headers + "`";
        });
    }

    void lease(String write, Step begin) throws Exception {
        add("lease", write, key -> {
            begin.run(key);
            return look("SELECT round(extract(epoch FROM lease_until - created_at))::int FROM idempotency.records "
                + "WHERE scope = 'tried' AND key = ?", key) + " seconds";
        });
    }

    /** A client of the pooler, which does one of these in a transaction. */
    interface Pooled extends AutoCloseable {
        void begin() throws Exception;

        /** The scope of the claim. */
        Object claim(String scope) throws Exception;

        void commit() throws Exception;
    }

    interface Connect {
        Pooled connect() throws Exception;
    }

    /** Through a pooler in transaction mode; the other client takes the server's connection that was used last. */
    void pooled(String write, Connect pooler) throws Exception {
        add("pooler", "behind a pooler in transaction mode" + write, key -> {
            try (Pooled mine = pooler.connect(); Pooled yours = pooler.connect()) {
                for (int i = 0; i < 10; i++) {
                    claim(mine, "mine");
                    mine.commit();
                    claim(yours, "yours");
                    yours.commit();
                    claim(yours, "yours");
                    claim(mine, "mine");
                    mine.commit();
                    yours.commit();
                }
                return "works";
            } catch (AnotherStatement e) {
                return "silently another's statement: " + e.getMessage();
            }
        });
    }

    private static void claim(Pooled client, String scope) throws Exception {
        client.begin();
        Object claimed = client.claim(scope);
        if (!scope.equals(claimed)) throw new AnotherStatement(claimed + " was claimed for " + scope);
    }

    static class AnotherStatement extends Exception {
        AnotherStatement(String message) {
            super(message);
        }
    }

    static int poolerPort() {
        return Integer.parseInt(System.getenv("POOLER_PORT"));
    }

    /** Only a connection like this one can block its token. */
    long claim(String key) throws SQLException {
        return Long.parseLong(look("SELECT token FROM idem_begin(?, scope => 'tried', lease => '1 minute')", key));
    }

    String status(String key) throws SQLException {
        return look("SELECT status FROM idem_get(?, 'tried')", key);
    }

    static String prepared(long n) {
        return n + " prepared " + (n == 1 ? "statement stays" : "statements stay") + " in the session";
    }
}
