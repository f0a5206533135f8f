package idempotency.postgres.servlet;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import idempotency.postgres.Answer;
import idempotency.postgres.Contract;
import idempotency.postgres.Idempotency;
import idempotency.postgres.Outcome;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/** The reason of a refusal, as a problem document: the server's, or our own if the server has none. */
record Problem(String word, String title, int status) {
    static final Problem PRINCIPAL = known("unauthorized");
    static final Problem TOO_LARGE = known("body_too_large");
    static final Problem CODING = known("content_encoding");
    static final Problem BODY = known("bad_body");
    static final Problem JSON = known("bad_json");
    static final Problem UNAVAILABLE = known("unavailable");
    static final Problem ANSWER = known("answer_too_large");
    static final Problem LATE = known("handler_late");
    static final Problem INTERNAL = known("internal");

    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final String TYPE = "/problems/idempotency/";

    private static Problem known(String word) {
        Contract.Document document = Contract.PROBLEMS.get(word);
        return document == null ? INTERNAL : new Problem(word, document.title(), document.status());
    }

    /** The server's document of an outcome, or one without details. */
    static Answer of(Idempotency idempotency, Route route, String word, Double retryAfter) {
        String document = idempotency.problem(word);
        if (document != null) {
            return answer(route, word, parsed(document), retryAfter);
        }
        return known(word).answer(route, retryAfter);
    }

    Answer answer(Route route, Double retryAfter) {
        ObjectNode document = MAPPER.createObjectNode();
        document.put("type", TYPE + word.replace('_', '-')).put("title", title).put("status", status);
        return answer(route, word, document, retryAfter);
    }

    private static Answer answer(Route route, String word, ObjectNode document, Double retryAfter) {
        int status = route.statuses.getOrDefault(word, document.path("status").asInt(500));
        document.put("status", status);
        Map<String, List<String>> headers = Answer.noHeaders();
        headers.put("Content-Type", List.of("application/problem+json"));
        Double after = retryAfter == null && word.equals(Outcome.IN_PROGRESS) ? Double.valueOf(1) : retryAfter;
        if (after != null) {
            long seconds = (long) Math.ceil(after);
            document.put("retry_after", seconds);
            headers.put("Retry-After", List.of(Long.toString(seconds)));
        }
        if (status == 401) {
            headers.put("WWW-Authenticate", List.of("Bearer"));
        }
        return new Answer(status, headers, document.toString().getBytes(StandardCharsets.UTF_8));
    }

    private static ObjectNode parsed(String document) {
        try {
            return (ObjectNode) MAPPER.readTree(document);
        } catch (JsonProcessingException fromTheServer) {
            throw new IllegalStateException(fromTheServer);
        }
    }
}
