package server;

import com.fasterxml.jackson.databind.JsonNode;
import idempotency.postgres.Answer;
import idempotency.postgres.Claim;
import idempotency.postgres.Execution;
import idempotency.postgres.Verdict;
import idempotency.postgres.servlet.MissingKey;
import idempotency.postgres.spring.Idempotent;
import idempotency.postgres.spring.PrincipalResolver;
import idempotency.postgres.spring.RouteCustomizer;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.PrintStream;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.context.event.ApplicationReadyEvent;
import org.springframework.context.annotation.Bean;
import org.springframework.context.event.EventListener;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;

/**
 * The server of the conformance suite, clients/conformance/README.md: each route is one line, and all share one
 * handler.
 */
@SpringBootApplication
public class Server {
    private static final PrintStream OUT = System.out;

    public static void main(String[] arguments) {
        System.setOut(System.err); // logs go here; no process reads the other stream
        SpringApplication.run(Server.class, arguments);
    }

    @EventListener(ApplicationReadyEvent.class)
    void ready() {
        OUT.println("ready");
        OUT.flush();
    }

    /** The token of the one Authorization field. */
    @Bean
    PrincipalResolver tenant() {
        return request -> {
            List<String> fields = Collections.list(request.getHeaders("Authorization"));
            String[] parts = fields.size() == 1 ? fields.get(0).split(" ", 2) : new String[0];
            return parts.length == 2 && parts[0].equalsIgnoreCase("Bearer") ? parts[1].strip() : null;
        };
    }

    /** BENCH: for bench/clients, without the suite's hooks and with the route /bare. */
    @Bean
    RouteCustomizer hooks(Handler handler) {
        if (System.getenv("BENCH") != null) {
            return (route, method) -> {};
        }
        return (route, method) -> route.onExecute(event -> handler.told("execute", event))
                .onReplay(event -> handler.told("replay", event)).onRefusal(event -> handler.told("refusal", event))
                .onLeaseLost(event -> handler.told("lease_lost", event));
    }

    @Bean
    RouteCustomizer verdicts() {
        return (route, method) -> {
            String name = method.getMethod().getName();
            if (name.equals("configured")) {
                route.keep(status -> true);
            } else if (name.startsWith("judged")) {
                route.verdict(Server::verdict);
            }
        };
    }

    /** As the field X-Verdict says; without it, the status decides. */
    private static Verdict verdict(Answer answer) {
        List<String> word = answer.headers().get("X-Verdict");
        return word == null ? null : Verdict.valueOf(word.get(0).toUpperCase(Locale.ROOT));
    }

    @RestController
    static class Routes {
        private final Handler handler;

        Routes(Handler handler) {
            this.handler = handler;
        }

        /** The work of /transactional without the client. */
        @PostMapping("/bare")
        ResponseEntity<Void> bare(@RequestBody JsonNode order) {
            handler.bare(order.get("effect").asText());
            return ResponseEntity.status(201).build();
        }

        @PostMapping("/transactional")
        @Idempotent
        void transactional(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Execution execution)
                throws Exception {
            handler.handle(body, request, response, execution, null);
        }

        @PostMapping("/leased")
        @Idempotent(leased = true, lease = "2s")
        void leased(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Claim claim) throws Exception {
            handler.handle(body, request, response, claim.execution(), claim);
        }

        @PostMapping("/uncertain")
        @Idempotent(leased = true, lease = "2s")
        void uncertain(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Claim claim) throws Exception {
            handler.handle(body, request, response, claim.execution(), claim);
        }

        @PostMapping("/generate")
        @Idempotent(missingKey = MissingKey.GENERATE)
        void generate(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Execution execution)
                throws Exception {
            handler.handle(body, request, response, execution, null);
        }

        @PostMapping("/derive")
        @Idempotent(missingKey = MissingKey.DERIVE, window = "2s")
        void derive(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Execution execution)
                throws Exception {
            handler.handle(body, request, response, execution, null);
        }

        @PostMapping("/pass")
        @Idempotent(missingKey = MissingKey.PASS)
        void pass(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Execution execution)
                throws Exception {
            handler.handle(body, request, response, execution, null);
        }

        @PostMapping("/configured")
        @Idempotent(statuses = {"in_progress=425", "mismatch=400", "unavailable=500"}, keyHeader = "X-Request-Key",
                replayHeader = "X-Replay", echoKey = true, exclude = "ts", ttl = "1s")
        void configured(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Execution execution)
                throws Exception {
            handler.handle(body, request, response, execution, null);
        }

        @PostMapping("/small")
        @Idempotent(maxRequestBytes = 1000, maxAnswerBytes = 1000)
        void small(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Execution execution)
                throws Exception {
            handler.handle(body, request, response, execution, null);
        }

        @PostMapping("/omit")
        @Idempotent(maxAnswerBytes = 1000, omitLargeAnswers = true)
        void omit(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Execution execution)
                throws Exception {
            handler.handle(body, request, response, execution, null);
        }

        @PostMapping("/unprotected")
        @Idempotent(unprotectedWithoutDatabase = true)
        void unprotected(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Execution execution)
                throws Exception {
            handler.handle(body, request, response, execution, null);
        }

        @PostMapping("/streamed")
        @Idempotent
        void streamed(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Execution execution)
                throws Exception {
            handler.handle(body, request, response, execution, null);
        }

        @PostMapping("/judged")
        @Idempotent
        void judged(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Execution execution)
                throws Exception {
            handler.handle(body, request, response, execution, null);
        }

        @PostMapping("/judged_leased")
        @Idempotent(leased = true, lease = "2s")
        void judgedLeased(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Claim claim) throws Exception {
            handler.handle(body, request, response, claim.execution(), claim);
        }

        @PostMapping("/impatient")
        @Idempotent(handlerTimeout = "1s")
        void impatient(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Execution execution)
                throws Exception {
            handler.handle(body, request, response, execution, null);
        }

        @PostMapping("/patient")
        @Idempotent(waitFor = "4s")
        void patient(@RequestBody(required = false) byte[] body, HttpServletRequest request, HttpServletResponse response, Execution execution)
                throws Exception {
            handler.handle(body, request, response, execution, null);
        }

        @GetMapping("/ways")
        Map<String, Object> ways() {
            return Map.of("hide_error", Handler.FAILURES.keySet(), "commit", Handler.COMMITS.keySet(),
                    "waits", Map.of("execute", 4, "replay", 2, "leased", 3));
        }

        @GetMapping("/health")
        String health() {
            return "ok\n";
        }
    }
}
