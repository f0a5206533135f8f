package idempotency.postgres.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import idempotency.postgres.Claim;
import idempotency.postgres.Execution;
import idempotency.postgres.Idempotency;
import idempotency.postgres.NothingHappenedException;
import idempotency.postgres.Request;
import idempotency.postgres.TestDatabase;
import jakarta.persistence.Entity;
import jakarta.persistence.EntityManager;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.sql.SQLException;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.boot.test.web.client.TestRestTemplate;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Import;
import org.springframework.dao.DataIntegrityViolationException;
import org.springframework.http.HttpEntity;
import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatus;
import org.springframework.http.ResponseEntity;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.stereotype.Service;
import org.springframework.test.context.DynamicPropertyRegistry;
import org.springframework.test.context.DynamicPropertySource;
import org.springframework.transaction.annotation.Propagation;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.support.TransactionTemplate;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.method.HandlerMethod;
import org.springframework.web.server.ResponseStatusException;

@SpringBootTest(webEnvironment = SpringBootTest.WebEnvironment.RANDOM_PORT,
        properties = {"spring.jpa.hibernate.ddl-auto=none", "logging.level.root=warn"})
class StarterTest {
    private static final TestDatabase DATABASE = TestDatabase.create();
    private static final AtomicInteger RUNS = new AtomicInteger();

    @Autowired
    private TestRestTemplate client;
    @Autowired
    private Idempotency idempotency;
    @Autowired
    private TransactionTemplate transactions;
    private final String key = UUID.randomUUID().toString();

    @DynamicPropertySource
    static void database(DynamicPropertyRegistry registry) {
        DATABASE.run("CREATE TABLE IF NOT EXISTS payment (id text PRIMARY KEY, amount integer NOT NULL)");
        registry.add("spring.datasource.url", DATABASE::url);
        registry.add("spring.datasource.username", TestDatabase::user);
    }

    @AfterAll
    static void drop(@Autowired javax.sql.DataSource pool) throws Exception {
        ((AutoCloseable) pool).close();
        DATABASE.close();
    }

    @BeforeEach
    void nobodyHasRun() {
        RUNS.set(0);
    }

    @Entity
    @Table(name = "payment")
    static class Payment {
        @Id
        String id;
        int amount;
    }

    record Order(String id, int amount) {}

    @SpringBootApplication
    @Import({Books.class, Controller.class})
    static class Application {
        @Bean
        PrincipalResolver tenant() {
            return request -> request.getHeader("X-Tenant");
        }
    }

    @Service
    static class Books {
        private final JdbcTemplate jdbc;

        Books(JdbcTemplate jdbc) {
            this.jdbc = jdbc;
        }

        void failBehindSavepoint() {
            jdbc.execute((java.sql.Connection connection) -> {
                java.sql.Savepoint before = connection.setSavepoint();
                try {
                    return connection.createStatement().execute("SELECT 1/0");
                } catch (SQLException expected) {
                    connection.rollback(before);
                    return null;
                }
            });
        }

        @Transactional
        public void book(Order order) {
            jdbc.update("INSERT INTO payment VALUES (?, ?)", order.id(), order.amount());
        }

        @Transactional(propagation = Propagation.MANDATORY)
        public void fail() {
            throw new IllegalStateException("no");
        }
    }

    @RestController
    static class Controller {
        private final Books books;
        private final EntityManager entities;

        Controller(Books books, EntityManager entities) {
            this.books = books;
            this.entities = entities;
        }

        @PostMapping("/accounts/{account}/payments")
        @Idempotent
        ResponseEntity<Map<String, Object>> pay(@PathVariable String account, @RequestBody Order order, Execution execution) {
            RUNS.incrementAndGet();
            books.book(order);
            return ResponseEntity.status(201).header("X-Account", account)
                    .body(Map.of("id", order.id(), "attempt", execution.attempt()));
        }

        @PostMapping("/jpa")
        @Idempotent
        Order jpa(@RequestBody Order order) {
            RUNS.incrementAndGet();
            Payment payment = new Payment();
            payment.id = order.id();
            payment.amount = order.amount();
            entities.persist(payment);
            return order;
        }

        @PostMapping("/refused")
        @Idempotent
        Order refused(@RequestBody Order order) {
            RUNS.incrementAndGet();
            books.book(order);
            throw new ResponseStatusException(HttpStatus.PAYMENT_REQUIRED, "no money");
        }

        @PostMapping("/conflict")
        @Idempotent
        Order conflict(@RequestBody Order order) throws SQLException {
            books.book(order);
            if (RUNS.incrementAndGet() < 3) {
                throw new SQLException("conflict", "40001");
            }
            return order;
        }

        @ExceptionHandler(SQLException.class)
        ResponseEntity<String> hidden() {
            return ResponseEntity.status(200).body("as if nothing had happened");
        }

        @PostMapping("/saved")
        @Idempotent
        Order saved(@RequestBody Order order) {
            books.failBehindSavepoint();
            books.book(order);
            return order;
        }

        @PostMapping("/marked")
        @Idempotent
        Order marked(@RequestBody Order order) {
            books.book(order);
            try {
                books.fail();
            } catch (IllegalStateException caught) {
                return order; // but the transaction can't be committed any more
            }
            return null;
        }

        @PostMapping("/leased")
        @Idempotent(leased = true)
        Order leased(@RequestBody Order order, Claim claim) {
            RUNS.incrementAndGet();
            claim.step("booked", Void.class, () -> {
                books.book(order);
                return null;
            });
            return order;
        }

        @PostMapping("/unsure")
        @Idempotent(leased = true)
        Order unsure(@RequestBody Order order) {
            RUNS.incrementAndGet();
            if (order.amount() == 0) {
                throw new NothingHappenedException("refused before anything was sent");
            }
            throw new ResponseStatusException(HttpStatus.BAD_GATEWAY, "no answer");
        }

        @ExceptionHandler(NothingHappenedException.class)
        ResponseEntity<String> notYet() {
            return ResponseEntity.status(503).body("later");
        }

        @PostMapping("/free")
        Order free(@RequestBody Order order) {
            RUNS.incrementAndGet();
            return order;
        }
    }

    private ResponseEntity<String> post(String path, int amount) {
        HttpHeaders headers = new HttpHeaders();
        headers.add("X-Tenant", "acme");
        headers.add("Idempotency-Key", key);
        return client.postForEntity(path, new HttpEntity<>(new Order(key, amount), headers), String.class);
    }

    private int payments() {
        return Integer.parseInt(DATABASE.value("SELECT count(*) FROM payment WHERE id = '" + key + "'"));
    }

    private String recorded(String field) {
        return DATABASE.value("SELECT " + field + " FROM idempotency.records WHERE key = '" + key + "'");
    }

    private void assertReplayed(ResponseEntity<String> first, ResponseEntity<String> again) {
        assertEquals("true", again.getHeaders().getFirst("Idempotent-Replayed"));
        assertEquals(first.getStatusCode(), again.getStatusCode());
        assertEquals(first.getBody(), again.getBody());
        assertEquals(first.getHeaders().getContentType(), again.getHeaders().getContentType());
    }

    @Test
    void jdbcWorksInTheTransactionOfTheClaim() {
        ResponseEntity<String> first = post("/accounts/7/payments", 5);
        assertEquals(201, first.getStatusCode().value());
        assertReplayed(first, post("/accounts/7/payments", 5));
        assertEquals(422, post("/accounts/7/payments", 6).getStatusCode().value());
        assertEquals(1, RUNS.get());
        assertEquals(1, payments());
        assertEquals("POST /accounts/{account}/payments", recorded("scope"));
    }

    @Test
    void jpaWorksInTheTransactionOfTheClaim() {
        ResponseEntity<String> first = post("/jpa", 5);
        assertEquals(200, first.getStatusCode().value());
        assertReplayed(first, post("/jpa", 5));
        assertEquals(1, payments());
    }

    @Test
    void whatJpaCantFlushHasNotHappened() {
        DATABASE.run("INSERT INTO payment VALUES ('" + key + "', 1)");
        assertEquals(500, post("/jpa", 5).getStatusCode().value());
        assertEquals(null, recorded("status"));
    }

    @Test
    void errorBehindASavepointIsNoFailure() {
        assertEquals(200, post("/saved", 5).getStatusCode().value());
        assertEquals(1, payments());
    }

    @Test
    void refusalIsKeptWithoutTheWork() {
        ResponseEntity<String> first = post("/refused", 5);
        assertEquals(402, first.getStatusCode().value());
        ResponseEntity<String> again = post("/refused", 5);
        assertEquals(402, again.getStatusCode().value());
        assertEquals(first.getBody(), again.getBody());
        assertEquals("true", again.getHeaders().getFirst("Idempotent-Replayed"));
        assertEquals(1, RUNS.get());
        assertEquals(0, payments());
    }

    @Test
    void conflictsAreRepeatedWhateverHandlesThem() {
        assertEquals(200, post("/conflict", 5).getStatusCode().value());
        assertEquals(3, RUNS.get());
        assertEquals(1, payments());
    }

    @Test
    void aTransactionThatCantBeCommittedIsNoSuccess() {
        assertEquals(500, post("/marked", 5).getStatusCode().value());
        assertEquals(0, payments());
        assertEquals(null, recorded("status"));
    }

    @Test
    void aLeasedMethodHasAClaim() {
        ResponseEntity<String> first = post("/leased", 5);
        assertEquals(200, first.getStatusCode().value());
        assertReplayed(first, post("/leased", 5));
        assertEquals(1, RUNS.get());
    }

    @Test
    void aLeasedMethodThatThrowsMayHaveHadItsEffect() {
        DATABASE.run("SELECT idem_policy_set('POST /unsure', on_lease_expiry => 'unknown')");
        assertEquals(502, post("/unsure", 5).getStatusCode().value());
        assertEquals("unknown", recorded("status"));
        assertEquals(409, post("/unsure", 5).getStatusCode().value());
        assertEquals(1, RUNS.get());
    }

    @Test
    void anExceptionCanSayThatNothingHappened() {
        DATABASE.run("SELECT idem_policy_set('POST /unsure', on_lease_expiry => 'unknown')");
        assertEquals(503, post("/unsure", 0).getStatusCode().value());
        assertEquals("retryable", recorded("status"));
    }

    @Test
    void withoutAnAnnotationNothingIsClaimed() {
        post("/free", 5);
        post("/free", 5);
        assertEquals(2, RUNS.get());
        assertEquals(null, recorded("status"));
    }

    @Test
    void aBodyThatMeansNothingClaimsNothing() {
        HttpHeaders headers = new HttpHeaders();
        headers.add("X-Tenant", "acme");
        headers.add("Idempotency-Key", key);
        headers.add("Content-Type", "application/json");
        assertEquals(400, client.postForEntity("/jpa", new HttpEntity<>("{\"amount\":\"x\"}", headers), String.class)
                .getStatusCode().value());
        assertEquals(null, recorded("status"));
    }

    @Test
    void functionsWorkInTheirOwnTransactions(@Autowired JdbcTemplate jdbc) {
        Request request = Request.of(key, "pay", "acme");
        for (int i = 0; i < 2; i++) {
            assertEquals(5, idempotency.transactionally(request, Integer.class, connection -> {
                jdbc.update("INSERT INTO payment VALUES (?, 5)", key);
                return 5;
            }));
        }
        assertEquals(1, payments());
        assertTrue(idempotency.once(key, "inbox", "", connection -> jdbc.update("DELETE FROM payment WHERE id = ?", key)));
        assertEquals(0, payments());
    }

    @Test
    void aClaimDoesNotHideInAnotherTransaction() {
        assertThrows(RuntimeException.class, () -> transactions.executeWithoutResult(status ->
                idempotency.transactionally(Request.of(key, "pay", "acme"), Integer.class, connection -> 5)));
        assertEquals(null, recorded("status"));
    }

    static class Late {
        @Idempotent
        public CompletableFuture<String> late() {
            return CompletableFuture.completedFuture("");
        }

        @Idempotent(lease = "soon")
        public String mistaken() {
            return "";
        }
    }

    @Test
    void mistakesAreFoundBeforeTheFirstCall(@Autowired Routes routes) throws Exception {
        assertThrows(IllegalStateException.class, () -> routes.filterOf(new HandlerMethod(new Late(), "late")));
        assertThrows(IllegalArgumentException.class, () -> routes.filterOf(new HandlerMethod(new Late(), "mistaken")));
    }

    @Test
    void whatTheDatabaseRefusesIsTheHandlersToAnswer() {
        post("/accounts/7/payments", 5);
        assertThrows(DataIntegrityViolationException.class, () -> idempotency.transactionally(
                Request.of(key + "-2", "pay", "acme"), Integer.class, connection -> {
                    throw new DataIntegrityViolationException("no");
                }));
    }
}
