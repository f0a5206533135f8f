package idempotency.postgres.servlet;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import idempotency.postgres.Database;
import idempotency.postgres.Idempotency;
import java.sql.Connection;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.Function;
import org.junit.jupiter.api.Test;

/** Options that make no sense are refused where a route is made. */
class RouteTest {
    private static final Duration NEGATIVE = Duration.ofSeconds(-1);
    private static final Map<String, List<Consumer<Route>>> NONSENSE = Map.ofEntries(
            Map.entry("window", List.of(route -> route.missingKey(MissingKey.DERIVE).window(Duration.ZERO),
                    route -> route.window(Duration.ofDays(1)))),
            Map.entry("ttl", List.of(route -> route.ttl(NEGATIVE), route -> route.ttl(Duration.ZERO))),
            Map.entry("lease", List.of(route -> route.lease(NEGATIVE), route -> route.lease(Duration.ZERO))),
            Map.entry("wait", List.of(route -> route.wait(NEGATIVE))),
            Map.entry("handlerTimeout", List.of(route -> route.handlerTimeout(Duration.ZERO),
                    route -> route.handlerTimeout(Duration.ofSeconds(Long.MAX_VALUE)))),
            Map.entry("attempts", List.of(route -> route.attempts(0))),
            Map.entry("maxRequestBytes", List.of(route -> route.maxRequestBytes(-1), route -> route.maxRequestBytes(Long.MAX_VALUE))),
            Map.entry("maxAnswerBytes", List.of(route -> route.maxAnswerBytes(-1))),
            Map.entry("status", List.of(route -> route.status("in_progres", 425), route -> route.status("mismatch", 200),
                    route -> route.status("mismatch", 600))),
            Map.entry("keyHeader", List.of(route -> route.keyHeader("Idempotency Key"), route -> route.keyHeader(""),
                    route -> route.keyHeader(null))),
            Map.entry("replayHeader", List.of(route -> route.replayHeader("X:"), route -> route.keyHeader("X-One").replayHeader("x-one"))),
            Map.entry("methods", List.of(route -> route.methods(), route -> route.methods("post"))),
            Map.entry("exclude", List.of(route -> route.exclude(""),
                    route -> route.exclude("at").fingerprint((request, body) -> body))),
            Map.entry("scope", List.of(route -> route.scope(""), route -> route.scope((String) null))),
            Map.entry("missingKey", List.of(route -> route.missingKey(null))),
            Map.entry("keep", List.of(route -> route.keep(null))),
            Map.entry("onReplay", List.of(route -> route.onReplay(null))));

    private static final Idempotency IDEMPOTENCY = Idempotency.on(new Database() {
        @Override
        public Transaction begin() {
            throw new AssertionError();
        }

        @Override
        public Connection connect() {
            throw new AssertionError();
        }
    }).build();

    private static Route made(Consumer<Route> options) {
        Route route = Route.of(request -> "acme");
        options.accept(route);
        IdempotencyFilter.leased(IDEMPOTENCY, route);
        IdempotencyFilter.transactional(IDEMPOTENCY, route);
        return route;
    }

    @Test
    void nonsenseIsRefusedByItsName() {
        NONSENSE.forEach((name, all) -> all.forEach(options -> {
            IllegalArgumentException refusal = assertThrows(IllegalArgumentException.class, () -> made(options), name);
            assertTrue(refusal.getMessage().startsWith("idempotency: " + name + " "), refusal.getMessage());
        }));
    }

    @Test
    void senseIsNot() {
        Duration second = Duration.ofSeconds(1);
        assertNotNull(made(route -> { }));
        assertNotNull(made(route -> route.missingKey(MissingKey.DERIVE).window(second).ttl(second).lease(second).wait(Duration.ZERO)
                .handlerTimeout(second).attempts(1).maxRequestBytes(0).maxAnswerBytes(0).status("unavailable", 500).keyHeader("X-Key")
                .replayHeader("X-Replay").methods("PUT", "DELETE").exclude("at").scope("pay").ttl(null)));
    }
}
