package idempotency.postgres.servlet;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import idempotency.postgres.Answer;
import idempotency.postgres.Idempotency;
import idempotency.postgres.Outcome;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/** The reason of a refusal, as a problem document: the server's, or our own if the server has none. */
record Problem(String word, String title, int status) {
    static final Problem PRINCIPAL = new Problem("unauthorized", "The request is not authenticated", 401);
    static final Problem TOO_LARGE = new Problem("body_too_large", "The body of the request is too large", 413);
    static final Problem CODING =
            new Problem("content_encoding", "The body of the request is in an encoding that is not understood", 415);
    static final Problem PARTS = new Problem("multipart", "The body of the request may not be one of parts", 415);
    static final Problem BODY = new Problem("bad_body", "The body of the request could not be read", 400);
    static final Problem JSON = new Problem("bad_json", "The body of the request is not JSON", 400);
    static final Problem UNAVAILABLE =
            new Problem("unavailable", "The request can't be executed now; it may be sent again", 503);
    static final Problem ANSWER = new Problem("answer_too_large", "The answer is too large to be kept", 500);
    static final Problem INTERNAL = new Problem("internal", "The request could not be executed", 500);

    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final String TYPE = "/problems/idempotency/";

    /** The statuses of idem_http_status, for when the server does not answer. */
    private static final Map<String, Integer> STATUS = Map.of("in_progress", 409, "mismatch", 422, "expired", 412,
            "retry_later", 503, "exhausted", 500, "unknown", 409, "missing_key", 400, "bad_key", 400, "failed", 500);

    /** The server's document of an outcome, or one without details. */
    static Answer of(Idempotency idempotency, Route route, String word, Double retryAfter) {
        String document = idempotency.problem(word);
        if (document != null) {
            return answer(route, word, parsed(document), retryAfter);
        }
        return new Problem(word, word.replace('_', ' '), STATUS.getOrDefault(word, 500)).answer(route, retryAfter);
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
