package idempotency.postgres;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.concurrent.atomic.AtomicInteger;

/** A database of its own, on the server that libpq's variables name, with the extension and a table of effects. */
public final class TestDatabase implements AutoCloseable {
    private static final AtomicInteger COUNTER = new AtomicInteger();

    private final String name = "java_" + ProcessHandle.current().pid() + "_" + COUNTER.incrementAndGet();
    private HikariDataSource pool;

    private TestDatabase() {}

    public static TestDatabase create() {
        TestDatabase made = new TestDatabase();
        administer("CREATE DATABASE " + made.name + " TEMPLATE template0 ENCODING 'UTF8'");
        made.pool = made.pool();
        made.run("CREATE EXTENSION idempotency");
        made.run("CREATE TABLE effect (note text)");
        return made;
    }

    /** JDBC knows no sockets of the file system. */
    private static String server() {
        String host = System.getenv("PGHOST");
        String port = System.getenv().getOrDefault("PGPORT", "5432");
        return "jdbc:postgresql://" + (host == null || host.startsWith("/") ? "127.0.0.1" : host) + ":" + port + "/";
    }

    public static String user() {
        return System.getenv().getOrDefault("PGUSER", "postgres");
    }

    public String url() {
        return server() + name;
    }

    public HikariDataSource pool() {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(url());
        config.setUsername(user());
        config.setMinimumIdle(0);
        config.setMaximumPoolSize(8);
        return new HikariDataSource(config);
    }

    public HikariDataSource shared() {
        return pool;
    }

    public void run(String sql) {
        try (Connection connection = pool.getConnection(); Statement statement = connection.createStatement()) {
            statement.execute(sql);
        } catch (SQLException e) {
            throw new AssertionError(sql, e);
        }
    }

    /** The first field of the first row. */
    public String value(String sql) {
        try (Connection connection = pool.getConnection(); Statement statement = connection.createStatement();
                ResultSet row = statement.executeQuery(sql)) {
            return row.next() ? row.getString(1) : null;
        } catch (SQLException e) {
            throw new AssertionError(sql, e);
        }
    }

    public int effects(String note) {
        return Integer.parseInt(value("SELECT count(*) FROM effect WHERE note = '" + note + "'"));
    }

    private static void administer(String sql) {
        try (Connection connection = DriverManager.getConnection(server() + "postgres", user(), "");
                Statement statement = connection.createStatement()) {
            statement.execute(sql);
        } catch (SQLException e) {
            throw new AssertionError(sql, e);
        }
    }

    @Override
    public void close() {
        pool.close();
        administer("DROP DATABASE " + name + " WITH (FORCE)");
    }
}
