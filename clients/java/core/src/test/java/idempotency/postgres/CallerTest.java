package idempotency.postgres;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class CallerTest {
    private interface Reply {
        void to(HttpExchange exchange) throws IOException;
    }

    private final Queue<Reply> replies = new ArrayDeque<>();
    private final List<String> keys = new ArrayList<>();
    private HttpServer server;
    private final Caller caller = new Caller(HttpClient.newHttpClient(), "Idempotency-Key", 4, Duration.ofMillis(1),
            Duration.ofMillis(5), Duration.ofSeconds(30));

    @BeforeEach
    void start() throws IOException {
        server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.createContext("/", exchange -> {
            keys.add(exchange.getRequestHeaders().getFirst("Idempotency-Key"));
            exchange.getRequestBody().readAllBytes();
            replies.remove().to(exchange);
            exchange.close();
        });
        server.start();
    }

    @AfterEach
    void stop() {
        server.stop(0);
    }

    private static Reply reply(int status, String type, String body, String... fields) {
        return exchange -> {
            byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
            exchange.getResponseHeaders().add("Content-Type", type);
            for (int i = 0; i < fields.length; i += 2) {
                exchange.getResponseHeaders().add(fields[i], fields[i + 1]);
            }
            exchange.sendResponseHeaders(status, bytes.length);
            exchange.getResponseBody().write(bytes);
        };
    }

    private static Reply problem(int status, String word, String... fields) {
        return reply(status, "application/problem+json", "{\"type\":\"/problems/idempotency/" + word + "\"}", fields);
    }

    private static final Reply CUT = HttpExchange::close;

    private HttpResponse<String> send(String key) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + server.getAddress().getPort() + "/"))
                .POST(HttpRequest.BodyPublishers.ofString("{}")).build();
        return caller.send(key, request, HttpResponse.BodyHandlers.ofString());
    }

    @Test
    void oneKeyForAllSendings() throws Exception {
        replies.addAll(List.of(CUT, problem(409, "in-progress"), problem(503, "unavailable"), reply(201, "text/plain", "paid")));
        assertEquals("paid", send("k-1").body());
        assertEquals(List.of("\"k-1\"", "\"k-1\"", "\"k-1\"", "\"k-1\""), keys);
    }

    @Test
    void finalAnswersAreNotRepeated() throws Exception {
        for (Reply each : List.of(problem(422, "mismatch"), problem(500, "failed"), problem(500, "exhausted"),
                reply(402, "text/plain", "no"), reply(503, "text/plain", "kept", "Idempotent-Replayed", "true"))) {
            replies.add(each);
            send("k-2");
        }
        assertEquals(5, keys.size());
    }

    @Test
    void retryAfterIsObeyed() throws Exception {
        replies.addAll(List.of(problem(409, "in-progress", "Retry-After", "1"), reply(200, "text/plain", "")));
        long begun = System.nanoTime();
        send("k-3");
        assertTrue(System.nanoTime() - begun >= 1_000_000_000L);
    }

    @Test
    void withoutFinalAnswerTheKeyIsTold() {
        replies.addAll(List.of(CUT, problem(409, "unknown"), reply(429, "text/plain", ""), problem(409, "unknown")));
        Caller.NotFinal none = assertThrows(Caller.NotFinal.class, () -> send("k-4"));
        assertEquals("k-4", none.key());
        assertEquals(409, none.response().orElseThrow().statusCode());
    }

    @Test
    void keysAreOfVersion7AndDiffer() {
        Set<String> made = ConcurrentHashMap.newKeySet();
        for (int i = 0; i < 1000; i++) {
            String key = Caller.newKey();
            assertTrue(key.matches("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"), key);
            made.add(key);
        }
        assertEquals(1000, made.size());
    }

    @Test
    void senselessOptionsAreRefused() {
        assertThrows(IllegalArgumentException.class, () -> new Caller(HttpClient.newHttpClient(), "K", 0, Duration.ZERO,
                Duration.ZERO, Duration.ZERO));
    }
}
