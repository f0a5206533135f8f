import java.sql.Connection;
import java.sql.ResultSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.postgresql.ds.PGSimpleDataSource;

/** Prints what a driver does with the protocol, as one line of JSON. */
class Main {
    static final List<String> COLUMNS = List.of("outcome", "key", "scope", "principal", "token", "attempt", "status", "status_code",
        "headers", "body", "body_omitted", "error", "recovery_point", "state", "holder", "retry_after", "created_at", "finished_at",
        "lease_until", "expires_at");

    public static void main(String[] arguments) throws Exception {
        try (Connection admin = database().getConnection()) {
            Tries tries = new Tries(admin);
            tries.look("SELECT idem_policy_set('tried', store_request => true)");
            Driver driver = arguments[0].equals("jdbc") ? new Jdbc() : new R2dbc();
            checkPay(driver, tries);
            driver.tries(tries);
            System.out.println(Json.object(Map.of("driver", "java/" + arguments[0], "version", driver.version(),
                "columns", columns(driver), "tries", tries.rows)));
            driver.close();
        }
    }

    static PGSimpleDataSource database() {
        PGSimpleDataSource source = new PGSimpleDataSource();
        source.setServerNames(new String[] {System.getenv("PGHOST")});
        source.setPortNumbers(new int[] {Integer.parseInt(System.getenv("PGPORT"))});
        source.setUser(System.getenv("PGUSER"));
        source.setDatabaseName(System.getenv("PGDATABASE"));
        return source;
    }

    /** The code on the page. */
    static void checkPay(Driver driver, Tries tries) throws Exception {
        Answer first = driver.pay("pay", "acme", "{\"amount\": 5}");
        must(first.status() == 201, "the first is " + first);
        Answer again = driver.pay("pay", "acme", "{\"amount\": 5.0}");
        must(again.status() == 201 && new String(again.body()).equals(new String(first.body())), "a repeat is " + again);
        must(new String(again.body()).equals("{\"id\": 1}"), "the body is " + new String(again.body()));
        must(again.headers().equals("{\"Content-Type\": \"application/json\"}"), "headers are " + again.headers());
        Answer other = driver.pay("pay", "acme", "{\"amount\": 6}");
        must(other.status() == 422 && new String(other.body()).contains("\"title\""), "another payload is " + other);
        must(driver.pay("pay", "other", "{\"amount\": 7}").status() == 201, "another tenant");
        try {
            driver.pay("fails", "acme", "{}");
            must(false, "a payment without an amount fails");
        } catch (Exception expected) {
            must(driver.pay("fails", "acme", "{\"amount\": 8}").status() == 201, "what failed is rolled back");
        }
        must(tries.look("SELECT count(*) FROM payment").equals("3"), "there are three payments");
    }

    /** The type of the first value in each column, in the course of a claim. */
    static Map<String, String> columns(Driver driver) throws Exception {
        Map<String, String> found = new LinkedHashMap<>();
        String names = "scope => 'columns', principal => 'acme'";
        String begin = "SELECT * FROM idem_begin('k', " + names + ", lease => '1 minute', holder => 'me')";
        Object token = types(found, driver.row(begin)).get("token");
        types(found, driver.row(begin));
        driver.row("SELECT idem_checkpoint('k', 'charged', '{\"charge\": 1}', " + names + ", token => " + token + ")");
        driver.row("SELECT idem_fail('k', 'no', retryable => true, retry_after => '0', " + names + ", token => " + token + ")");
        token = types(found, driver.row(begin)).get("token");
        driver.row("SELECT idem_complete('k', 201, '{\"id\": 1}', '{\"X-A\": [\"1\", \"2\"]}', " + names + ", token => " + token + ")");
        must("replay".equals(types(found, driver.row(begin)).get("outcome")), "it is replayed");
        must(new TreeSet<>(found.keySet()).equals(new TreeSet<>(COLUMNS)), "columns are " + found.keySet());
        return found;
    }

    static Map<String, Object> types(Map<String, String> found, Map<String, Object> row) {
        row.forEach((column, value) -> {
            if (value != null) found.putIfAbsent(column, typeOf(value.getClass()));
        });
        return row;
    }

    /** The type as a program would write it: for a hidden class, its public interface or superclass. */
    static String typeOf(Class<?> type) {
        if (type.getName().startsWith("io.r2dbc.postgresql.codec.Json")) return "Json";
        if (java.nio.ByteBuffer.class.isAssignableFrom(type)) return "ByteBuffer";
        return type.getSimpleName();
    }

    static void must(boolean so, String what) {
        if (!so) throw new AssertionError(what);
    }
}
