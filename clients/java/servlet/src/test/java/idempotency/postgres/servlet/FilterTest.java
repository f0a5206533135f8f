package idempotency.postgres.servlet;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import idempotency.postgres.Claim;
import idempotency.postgres.Idempotency;
import idempotency.postgres.NothingHappenedException;
import idempotency.postgres.TestDatabase;
import jakarta.servlet.Filter;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.zip.GZIPOutputStream;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class FilterTest {
    private static final Map<String, Handler> HANDLERS = new ConcurrentHashMap<>();
    private static final List<Event> EVENTS = new CopyOnWriteArrayList<>();
    private static TestDatabase database;
    private static Tomcat tomcat;

    private final HttpClient client = HttpClient.newHttpClient();
    private final String key = UUID.randomUUID().toString();
    private int runs;

    private interface Handler {
        void handle(HttpServletRequest request, HttpServletResponse response) throws Exception;
    }

    private static final class Servlet extends HttpServlet {
        @Override
        protected void service(HttpServletRequest request, HttpServletResponse response) throws ServletException, IOException {
            try {
                HANDLERS.get(request.getHeader("X-Handler")).handle(request, response);
            } catch (IOException | RuntimeException e) {
                throw e;
            } catch (Exception e) {
                throw new ServletException(e);
            }
        }
    }

    @BeforeAll
    static void start() throws Exception {
        database = TestDatabase.create();
        database.run("SELECT idem_policy_set('POST /sent', on_lease_expiry => 'unknown')");
        Idempotency idempotency = Idempotency.on(database.shared()).build();
        Route route = Route.of(request -> request.getHeader("X-Tenant")).onExecute(EVENTS::add).onReplay(EVENTS::add)
                .onRefusal(EVENTS::add);
        tomcat = new Tomcat();
        tomcat.setBaseDir(System.getProperty("java.io.tmpdir") + "/idempotency-" + ProcessHandle.current().pid());
        tomcat.setHostname("127.0.0.1");
        tomcat.setPort(0);
        Context context = tomcat.addContext("", null);
        Tomcat.addServlet(context, "all", new Servlet());
        context.addServletMappingDecoded("/paid/*", "all");
        context.addServletMappingDecoded("/sent", "all");
        context.addServletMappingDecoded("/small", "all");
        context.addServletMappingDecoded("/derived", "all");
        context.addServletMappingDecoded("/impatient", "all");
        context.addServletMappingDecoded("/patient", "all");
        context.addServletMappingDecoded("/sent/impatient", "all");
        protect(context, "/paid/*", IdempotencyFilter.transactional(idempotency, route));
        protect(context, "/sent", IdempotencyFilter.leased(idempotency, route));
        protect(context, "/small", IdempotencyFilter.transactional(idempotency, route.copy().maxRequestBytes(100).maxAnswerBytes(100)));
        protect(context, "/derived", IdempotencyFilter.transactional(idempotency,
                route.copy().missingKey(MissingKey.DERIVE).keyHeader("X-Key")));
        Route impatient = route.copy().handlerTimeout(Duration.ofMillis(300));
        protect(context, "/impatient", IdempotencyFilter.transactional(idempotency, impatient));
        protect(context, "/patient", IdempotencyFilter.transactional(idempotency, route.copy().scope("POST /impatient")));
        protect(context, "/sent/impatient", IdempotencyFilter.leased(idempotency, impatient.copy().scope("POST /sent")));
        tomcat.start();
    }

    private static void protect(Context context, String pattern, Filter filter) {
        FilterDef definition = new FilterDef();
        definition.setFilterName(pattern);
        definition.setFilter(filter);
        context.addFilterDef(definition);
        FilterMap map = new FilterMap();
        map.setFilterName(pattern);
        map.addURLPattern(pattern);
        context.addFilterMap(map);
    }

    @AfterAll
    static void stop() throws Exception {
        tomcat.stop();
        tomcat.destroy();
        database.close();
    }

    private HttpRequest.Builder request(String path, Handler handler) {
        HANDLERS.put(key, handler);
        return HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + tomcat.getConnector().getLocalPort() + path))
                .header("X-Handler", key).header("X-Tenant", "acme").header("Idempotency-Key", '"' + key + '"');
    }

    private HttpResponse<byte[]> post(String path, String type, String body, Handler handler) throws Exception {
        return send(request(path, handler).header("Content-Type", type).POST(HttpRequest.BodyPublishers.ofString(body)));
    }

    private HttpResponse<byte[]> post(String path, Handler handler) throws Exception {
        return post(path, "application/json", "{\"amount\":5}", handler);
    }

    private HttpResponse<byte[]> send(HttpRequest.Builder request) throws Exception {
        return client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
    }

    private static String text(HttpResponse<byte[]> answer) {
        return new String(answer.body(), StandardCharsets.UTF_8);
    }

    private void effect(HttpServletRequest request) throws SQLException {
        try (Statement statement = Current.of(request).connection().createStatement()) {
            statement.execute("INSERT INTO effect VALUES ('" + key + "')");
        }
    }

    private void pay(HttpServletRequest request, HttpServletResponse response) throws Exception {
        runs++;
        effect(request);
        response.setStatus(201);
        response.setContentType("text/plain;charset=UTF-8");
        response.addHeader("X-Several", "b");
        response.addHeader("X-Several", "a, c");
        response.getWriter().print("zwölf");
    }

    private void assertReplayed(HttpResponse<byte[]> first, HttpResponse<byte[]> again) {
        assertEquals(List.of("true"), again.headers().allValues("Idempotent-Replayed"));
        assertEquals(first.statusCode(), again.statusCode());
        assertEquals(first.headers().allValues("X-Several"), again.headers().allValues("X-Several"));
        assertEquals(first.headers().allValues("Content-Type"), again.headers().allValues("Content-Type"));
        assertArrayEquals(first.body(), again.body());
    }

    @Test
    void anEventIsPrintedWithoutItsKey() {
        assertEquals("Event[scope=s, attempt=1, outcome=replay]", new Event("s", key, 1, "replay").toString());
    }

    @Test
    void formCountsByItsParts() throws Exception {
        Handler read = (request, response) -> {
            effect(request);
            response.getWriter().write(request.getParameter("a") + request.getPart("f").getSubmittedFileName());
        };
        HttpResponse<byte[]> first = post("/paid/1", "multipart/form-data; boundary=one", form("one", "1"), read);
        assertEquals("1x.bin", text(first));
        assertReplayed(first, post("/paid/1", "multipart/form-data; boundary=\"two\"", form("two", "1"), read));
        assertEquals(422, post("/paid/1", "multipart/form-data; boundary=one", form("one", "2"), read).statusCode());
        assertEquals(1, database.effects(key));
    }

    private static String form(String boundary, String value) {
        return "--" + boundary + "\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" + value + "\r\n--" + boundary
                + "\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x.bin\"\r\nContent-Type: application/octet-stream\r\n\r\nxyz\r\n--"
                + boundary + "--\r\n";
    }

    @Test
    void emptyBodyIsOneWhateverItsType() throws Exception {
        HttpResponse<byte[]> first = post("/paid/1", "application/json", "", this::pay);
        assertEquals(201, first.statusCode());
        assertReplayed(first, post("/paid/1", "application/json", "", this::pay));
    }

    /** A thread that goes on while the answer is stored and sent: both are the same. */
    @Test
    void whatIsWrittenAfterTheHandlerIsNoPartOfTheAnswer() throws Exception {
        for (int i = 0; i < 20; i++) {
            String own = key + i;
            CountDownLatch begun = new CountDownLatch(1);
            AtomicBoolean end = new AtomicBoolean();
            Handler late = (request, response) -> {
                OutputStream out = response.getOutputStream();
                out.write("answer".getBytes(StandardCharsets.UTF_8));
                new Thread(() -> {
                    while (!end.get()) {
                        try {
                            response.setHeader("X-Late", Long.toString(System.nanoTime()));
                            out.write('!');
                        } catch (IOException frozen) {
                            Thread.onSpinWait();
                        }
                        begun.countDown();
                    }
                }).start();
                begun.await();
            };
            HttpResponse<byte[]> first = send(request("/paid/1", late).setHeader("Idempotency-Key", own)
                    .header("Content-Type", "text/plain").POST(HttpRequest.BodyPublishers.ofString("x")));
            HttpResponse<byte[]> again = send(request("/paid/1", late).setHeader("Idempotency-Key", own)
                    .header("Content-Type", "text/plain").POST(HttpRequest.BodyPublishers.ofString("x")));
            end.set(true);
            assertEquals("true", again.headers().firstValue("Idempotent-Replayed").orElse(""));
            assertEquals(text(first), text(again));
            assertEquals(first.headers().firstValue("X-Late"), again.headers().firstValue("X-Late"));
        }
    }

    @Test
    void aReplayIsTheFirstAnswer() throws Exception {
        HttpResponse<byte[]> first = post("/paid/1", this::pay);
        assertEquals(201, first.statusCode());
        assertEquals("zwölf", text(first));
        assertReplayed(first, post("/paid/1", this::pay));
        assertEquals(1, runs);
        assertEquals(1, database.effects(key));
        assertEquals("POST /paid/*", database.value("SELECT scope FROM idempotency.records WHERE key = '" + key + "'"));
    }

    @Test
    void hooksAreTold() throws Exception {
        post("/paid/1", this::pay);
        post("/paid/1", this::pay);
        post("/paid/1", "application/json", "{}", this::pay);
        assertEquals(List.of(new Event("POST /paid/*", key, 1, "execute"), new Event("POST /paid/*", key, 1, "replay"),
                new Event("POST /paid/*", key, 1, "mismatch")), EVENTS.stream().filter(event -> key.equals(event.key())).toList());
    }

    @Test
    void formsCanBeRead() throws Exception {
        HttpResponse<byte[]> answer = post("/paid/1?a=0", "application/x-www-form-urlencoded", "a=%C3%A4+b&a=2&c", (request, response) -> {
            request.setCharacterEncoding("UTF-8");
            response.setContentType("text/plain;charset=UTF-8");
            response.getWriter().print(String.join(",", request.getParameterValues("a")) + request.getParameter("c"));
        });
        assertEquals("0,ä b,2", text(answer));
    }

    @Test
    void anErrorThatWasSentIsAnAnswer() throws Exception {
        Handler handler = (request, response) -> {
            pay(request, response);
            response.sendError(402, "no money");
        };
        HttpResponse<byte[]> first = post("/paid/1", handler);
        assertEquals(402, first.statusCode());
        assertEquals("no money", text(first));
        assertReplayed(first, post("/paid/1", handler));
        assertEquals(1, runs);
    }

    private static final long LONG_SECONDS = 60;

    private void assertLate(HttpResponse<byte[]> answer) {
        assertEquals(503, answer.statusCode());
        assertTrue(text(answer).contains("/problems/idempotency/handler-late"), text(answer));
        assertEquals(0, database.effects(key));
    }

    @Test
    void aHandlerWithoutAnEndIsInterrupted() throws Exception {
        AtomicBoolean usable = new AtomicBoolean();
        assertLate(post("/impatient", (request, response) -> {
            pay(request, response);
            try {
                Thread.sleep(LONG_SECONDS * 1000);
            } catch (InterruptedException late) {
                try (Statement statement = Current.of(request).connection().createStatement()) {
                    usable.set(true);
                } catch (SQLException taken) {
                    throw late;
                }
            }
        }));
        assertFalse(usable.get());
        assertEquals(201, post("/patient", this::pay).statusCode());
    }

    @Test
    void aHandlerThatIsNotInterruptedIsGivenUp() throws Exception {
        CountDownLatch returned = new CountDownLatch(1);
        AtomicBoolean going = new AtomicBoolean(true);
        long end = System.nanoTime() + LONG_SECONDS * 1_000_000_000;
        HttpResponse<byte[]> answer = post("/impatient", (request, response) -> {
            try {
                pay(request, response);
            } catch (Exception late) {
                // It may be so already.
            }
            while (going.get() && System.nanoTime() < end) {
                Thread.onSpinWait();
            }
            returned.countDown();
        });
        assertTrue(System.nanoTime() < end);
        assertLate(answer);
        assertEquals(1, returned.getCount());
        assertEquals(201, post("/patient", this::pay).statusCode()); // the key is free while the handler goes on
        going.set(false);
        returned.await();
        assertEquals(1, database.effects(key));
    }

    @Test
    void aHandlerThatWaitsForTheDatabaseIsGivenUp() throws Exception {
        long end = System.nanoTime() + LONG_SECONDS * 1_000_000_000;
        assertLate(post("/impatient", (request, response) -> {
            try (Statement statement = Current.of(request).connection().createStatement()) {
                statement.execute("SELECT pg_sleep(" + LONG_SECONDS + ")");
            }
        }));
        assertTrue(System.nanoTime() < end);
    }

    @Test
    void aLeasedHandlerWithoutAnEnd() throws Exception {
        assertLate(post("/sent/impatient", (request, response) -> Thread.sleep(LONG_SECONDS * 1000)));
        assertEquals("unknown", database.value("SELECT status FROM idempotency.records WHERE key = '" + key + "'"));
    }

    @Test
    void aLeasedHandlerThatIsNotInterruptedIsGivenUp() throws Exception {
        AtomicBoolean going = new AtomicBoolean(true);
        long end = System.nanoTime() + LONG_SECONDS * 1_000_000_000;
        assertLate(post("/sent/impatient", (request, response) -> {
            while (going.get() && System.nanoTime() < end) {
                Thread.onSpinWait();
            }
        }));
        assertTrue(System.nanoTime() < end);
        assertEquals("unknown", database.value("SELECT status FROM idempotency.records WHERE key = '" + key + "'"));
        going.set(false);
    }

    @Test
    void anErrorThatIsNotKeptIsTheContainers() throws Exception {
        Handler handler = (request, response) -> {
            pay(request, response);
            response.sendError(503);
        };
        assertEquals(503, post("/paid/1", handler).statusCode());
        assertEquals(503, post("/paid/1", handler).statusCode());
        assertEquals(2, runs);
        assertEquals(0, database.effects(key));
    }

    @Test
    void whatThrowsHasNotHappened() throws Exception {
        assertEquals(500, post("/paid/1", (request, response) -> {
            pay(request, response);
            throw new IllegalStateException("no");
        }).statusCode());
        assertEquals(0, database.effects(key));
        assertEquals(201, post("/paid/1", this::pay).statusCode());
    }

    @Test
    void whatWasReportedHasNotHappened() throws Exception {
        assertEquals(422, post("/paid/1", (request, response) -> {
            pay(request, response);
            response.setStatus(422);
            Current.fail(request, new IllegalStateException("no"));
        }).statusCode());
        assertEquals(0, database.effects(key));
    }

    @Test
    void whoHasFailedIsNotToldToHaveSucceeded() throws Exception {
        assertEquals(500, post("/paid/1", (request, response) -> {
            pay(request, response);
            Current.fail(request, new IllegalStateException("no"));
        }).statusCode());
        assertEquals(0, database.effects(key));
    }

    @Test
    void anAnswerThatIsTooLargeIsNoAnswer() throws Exception {
        assertEquals(500, post("/small", (request, response) -> {
            effect(request);
            try {
                response.getOutputStream().write(new byte[101]);
            } catch (IOException hidden) {
                response.resetBuffer();
            }
        }).statusCode());
        assertEquals(0, database.effects(key));
    }

    @Test
    void conflictsThatWereReportedAreRepeated() throws Exception {
        HttpResponse<byte[]> answer = post("/paid/1", (request, response) -> {
            pay(request, response);
            if (runs < 3) {
                response.setStatus(500);
                Current.fail(request, new SQLException("conflict", "40001"));
            }
        });
        assertEquals(201, answer.statusCode());
        assertEquals(3, runs);
        assertEquals(1, database.effects(key));
    }

    @Test
    void theConnectionIsNotTheHandlersToCommit() throws Exception {
        assertEquals(500, post("/paid/1", (request, response) -> {
            effect(request);
            Current.of(request).connection().commit();
        }).statusCode());
        assertEquals(0, database.effects(key));
    }

    @Test
    void thereIsNoOtherThread() throws Exception {
        assertEquals(500, post("/paid/1", (request, response) -> request.startAsync()).statusCode());
    }

    @Test
    void theMethodsThatPassFindNothing() throws Exception {
        HttpResponse<byte[]> answer = send(request("/paid/1", (request, response) ->
                response.getWriter().print(Current.of(request))).GET());
        assertEquals("null", text(answer));
    }

    @Test
    void aClaimOfALeasedRoute() throws Exception {
        Handler handler = (request, response) -> {
            runs++;
            Claim claim = Current.of(request).claim();
            response.getWriter().print(claim.<Integer, RuntimeException>step("sent", Integer.class, () -> 17));
        };
        HttpResponse<byte[]> first = post("/sent", handler);
        assertEquals("17", text(first));
        assertReplayed(first, post("/sent", handler));
        assertEquals(1, runs);
    }

    private String recorded() {
        return database.value("SELECT status FROM idempotency.records WHERE key = '" + key + "'");
    }

    @Test
    void aLeasedRouteThatFailsLeavesItsOutcomeUnknownWhereThePolicySaysSo() throws Exception {
        assertEquals(503, post("/sent", (request, response) -> {
            runs++;
            response.setStatus(503);
        }).statusCode());
        assertEquals("unknown", recorded());
        HttpResponse<byte[]> again = post("/sent", (request, response) -> runs++);
        assertEquals(409, again.statusCode());
        assertTrue(again.headers().firstValue("Retry-After").isPresent());
        assertTrue(text(again).contains("/problems/idempotency/unknown"), text(again));
        assertEquals(1, runs);
    }

    @Test
    void aLeasedRouteWhereNothingHappenedMayBeTriedAgain() throws Exception {
        assertEquals(500, post("/sent", (request, response) -> {
            throw new ServletException(new NothingHappenedException("no connection"));
        }).statusCode());
        assertEquals("retryable", recorded());
    }

    @Test
    void nothingHappenedThatWasReportedMayBeTriedAgain() throws Exception {
        assertEquals(502, post("/sent", (request, response) -> {
            response.setStatus(502);
            Current.fail(request, new NothingHappenedException("no connection"));
        }).statusCode());
        assertEquals("retryable", recorded());
    }

    @Test
    void theAnswerAfterAnUnknownOutcomeIsSentAndNotStored() throws Exception {
        HttpResponse<byte[]> answer = post("/sent", (request, response) -> {
            Current.of(request).claim().unknown("no answer", "ch_1");
            response.setStatus(202);
            response.getWriter().print("we will see");
        });
        assertEquals(202, answer.statusCode());
        assertEquals("we will see", text(answer));
        assertEquals("unknown", recorded());
        assertEquals(409, post("/sent", this::pay).statusCode());
    }

    @Test
    void aDerivedKeyIsNamed() throws Exception {
        String body = "{\"order\":\"" + key + "\"}";
        HttpResponse<byte[]> first = post("/derived", "application/json", body, this::pay);
        assertTrue(first.headers().firstValue("X-Key").orElse("").matches("\"[0-9a-f]{64}\""), first.headers().toString());
        HttpResponse<byte[]> again = post("/derived", "application/json", " " + body, this::pay);
        assertReplayed(first, again);
        assertEquals(first.headers().firstValue("X-Key"), again.headers().firstValue("X-Key"));
        assertEquals(1, runs);
    }

    @Test
    void jsonThatJsonbRefusesIsComparedByteByByte() throws Exception {
        String odd = "{\"text\":\"\\u0000\",\"number\":1e200000}";
        HttpResponse<byte[]> first = post("/paid/1", "application/json", odd, this::pay);
        assertEquals(201, first.statusCode());
        assertReplayed(first, post("/paid/1", "application/json", odd, this::pay));
        assertEquals(422, post("/paid/1", "application/json", odd.replace("1e", "2e"), this::pay).statusCode());
        assertEquals(1, database.effects(key));
    }

    @Test
    void aLittleGzipMayHoldTooMuch() throws Exception {
        ByteArrayOutputStream zipped = new ByteArrayOutputStream();
        try (GZIPOutputStream out = new GZIPOutputStream(zipped)) {
            out.write(new byte[10_000]);
        }
        assertTrue(zipped.size() < 100);
        HttpResponse<byte[]> answer = send(request("/small", this::pay).header("Content-Encoding", "gzip")
                .header("Content-Type", "text/plain").POST(HttpRequest.BodyPublishers.ofByteArray(zipped.toByteArray())));
        assertEquals(413, answer.statusCode());
        assertEquals(0, runs);
    }

    @Test
    void gzipIsDecoded() throws Exception {
        ByteArrayOutputStream zipped = new ByteArrayOutputStream();
        try (GZIPOutputStream out = new GZIPOutputStream(zipped)) {
            out.write("{\"amount\": 5}".getBytes(StandardCharsets.UTF_8));
        }
        HttpResponse<byte[]> answer = send(request("/small", (request, response) -> {
            assertEquals(null, request.getHeader("Content-Encoding"));
            assertEquals(13, request.getContentLength());
            response.getWriter().print(request.getReader().readLine());
        }).header("Content-Encoding", "gzip").header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofByteArray(zipped.toByteArray())));
        assertEquals("{\"amount\": 5}", text(answer));
    }

    @Test
    void withoutATenantNobodyIsRead() throws Exception {
        HttpResponse<byte[]> answer = send(HttpRequest.newBuilder(request("/paid/1", this::pay).build().uri())
                .POST(HttpRequest.BodyPublishers.ofString("x")));
        assertEquals(401, answer.statusCode());
        assertNotEquals("", text(answer));
    }
}
