package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.boot.test.web.client.TestRestTemplate;
import org.springframework.http.HttpEntity;
import org.springframework.http.HttpHeaders;
import org.springframework.http.ResponseEntity;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.test.context.DynamicPropertyRegistry;
import org.springframework.test.context.DynamicPropertySource;

/** The README's services, in a schema of its own. */
@SpringBootTest(webEnvironment = SpringBootTest.WebEnvironment.RANDOM_PORT)
class PaymentsTest {
    private static final String SCHEMA = "shop_" + ProcessHandle.current().pid();

    @Autowired
    private TestRestTemplate client;
    @Autowired
    private JdbcTemplate jdbc;

    @DynamicPropertySource
    static void database(DynamicPropertyRegistry registry) {
        String host = System.getenv("PGHOST");
        registry.add("spring.datasource.url", () -> "jdbc:postgresql://" + (host.startsWith("/") ? "127.0.0.1" : host) + ":"
                + System.getenv().getOrDefault("PGPORT", "5432") + "/" + System.getenv().getOrDefault("PGDATABASE", "postgres")
                + "?currentSchema=" + SCHEMA + ",public");
        registry.add("spring.datasource.username", () -> System.getenv().getOrDefault("PGUSER", "postgres"));
    }

    @BeforeAll
    static void schema(@Autowired JdbcTemplate jdbc) {
        jdbc.execute("CREATE EXTENSION IF NOT EXISTS idempotency SCHEMA public");
        jdbc.execute("CREATE SCHEMA " + SCHEMA + " CREATE TABLE payment (id bigserial, amount integer)"
                + " CREATE TABLE booking (id bigserial PRIMARY KEY, amount integer)");
    }

    private ResponseEntity<String> post(String path, String key, int amount) {
        HttpHeaders headers = new HttpHeaders();
        headers.add("X-Tenant", SCHEMA);
        headers.add("Content-Type", "application/json");
        headers.add("Idempotency-Key", key);
        return client.postForEntity(path, new HttpEntity<>("{\"amount\": " + amount + "}", headers), String.class);
    }

    private void check(String path, int status) {
        int before = jdbc.queryForObject("SELECT count(*) FROM payment", Integer.class);
        ResponseEntity<String> first = post(path, path, 5);
        ResponseEntity<String> again = post(path, path, 5);
        assertEquals(status, first.getStatusCode().value());
        assertEquals(status, again.getStatusCode().value());
        assertNull(first.getHeaders().getFirst("Idempotent-Replayed"));
        assertEquals("true", again.getHeaders().getFirst("Idempotent-Replayed"));
        assertEquals(first.getBody(), again.getBody());
        assertEquals(422, post(path, path, 6).getStatusCode().value());
        assertEquals(before + 1, jdbc.queryForObject("SELECT count(*) FROM payment", Integer.class));
    }

    @Test
    void aPaymentIsMadeOnce() {
        check("/payments", 201);
    }

    @Test
    void aTransferIsMadeOnce() {
        check("/transfers", 200);
    }

    @Test
    void aWebhookIsWorkedOff() throws InterruptedException {
        String name = "scope => 'webhooks', principal => '" + SCHEMA + "'";
        jdbc.execute("SELECT idem_policy_set('webhooks', store_request => true)");
        jdbc.execute("SELECT FROM idem_begin('hook', '{\"amount\": 77}', " + name + ");"
                + "SELECT idem_fail('hook', 'queued', retryable => true, retry_after => '0', " + name + "); NOTIFY webhooks");
        String paid = "SELECT count(*) FROM payment WHERE amount = 77";
        for (int i = 0; i < 600 && jdbc.queryForObject(paid, Integer.class) == 0; i++) {
            Thread.sleep(100);
        }
        assertEquals(1, jdbc.queryForObject(paid, Integer.class));
        assertEquals("completed", jdbc.queryForObject("SELECT status FROM idempotency.records WHERE principal = '" + SCHEMA + "' AND scope = 'webhooks'", String.class));
    }

    @Test
    void jpaIsRolledBackInTheMiddle() {
        checkBookings("/jpa");
    }

    @Test
    void jooqIsRolledBackInTheMiddle() {
        checkBookings("/jooq");
    }

    private void checkBookings(String path) {
        jdbc.execute("DELETE FROM booking");
        checkBooking(post(path, path + "-a", 5000), 409, null, 0);
        checkBooking(post(path, path + "-a", 5000), 409, "true", 0);
        checkBooking(post(path, path + "-b", 5), 201, null, 1);
        checkBooking(post(path, path + "-b", 5), 201, "true", 1);
    }

    private void checkBooking(ResponseEntity<String> answer, int status, String replayed, int bookings) {
        assertEquals(status, answer.getStatusCode().value());
        assertEquals(replayed, answer.getHeaders().getFirst("Idempotent-Replayed"));
        assertEquals(bookings, jdbc.queryForObject("SELECT count(*) FROM booking", Integer.class));
    }
}
