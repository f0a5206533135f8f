package idempotency.postgres;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/**
 * An answer, or the stored part of it. A body of null was omitted; an empty body is a body.
 *
 * @param headers by names, ignoring letter case; the values of one name in order
 */
public record Answer(int status, Map<String, List<String>> headers, byte[] body) {
    /** Tells that the body of an answer was not kept. */
    public static final String BODY_HEADER = "Idempotent-Body";

    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static Map<String, List<String>> noHeaders() {
        return new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
    }

    /** Whether an answer with this status is stored, unless a route decides otherwise: all but 408, 425, 429 and 5xx. */
    public static boolean isKept(int status) {
        return status < 500 && !Contract.NOT_KEPT.contains(status);
    }

    /** An answer of which only the status is stored. */
    public static Answer omitted(int status) {
        Map<String, List<String>> headers = noHeaders();
        headers.put(BODY_HEADER, List.of("omitted"));
        return new Answer(status, headers, null);
    }

    /** The JSON argument of {@code idem_complete}. */
    String storedHeaders() {
        Map<String, Object> stored = new TreeMap<>();
        headers.forEach((name, values) -> {
            if (isStored(name) && !values.isEmpty()) {
                stored.put(name, values.size() == 1 ? values.get(0) : values);
            }
        });
        try {
            return MAPPER.writeValueAsString(stored);
        } catch (JsonProcessingException ofTextAlone) {
            throw new IllegalStateException(ofTextAlone);
        }
    }

    private boolean isStored(String name) {
        if (Contract.NOT_STORED.contains(name.toLowerCase(Locale.ROOT))) {
            return false;
        }
        // A field that Connection lists also belongs to this hop.
        return headers.getOrDefault("Connection", List.of()).stream().flatMap(list -> List.of(list.split(",")).stream())
                .noneMatch(item -> item.strip().equalsIgnoreCase(name));
    }

    /** The answer of a replay; null for a failure without a stored answer. */
    public static Answer of(Claimed claimed) {
        if (claimed.statusCode() == null && Outcome.FAILED.equals(claimed.status())) {
            return null;
        }
        Map<String, List<String>> headers = noHeaders();
        if (claimed.headers() != null) {
            parsed(claimed.headers()).properties().forEach(field -> {
                List<String> values = new ArrayList<>();
                if (field.getValue().isArray()) {
                    field.getValue().forEach(value -> values.add(value.asText()));
                } else {
                    values.add(field.getValue().asText());
                }
                headers.put(field.getKey(), values);
            });
        }
        if (claimed.bodyOmitted()) {
            headers.put(BODY_HEADER, List.of("omitted"));
        }
        int status = claimed.statusCode() == null ? 200 : claimed.statusCode();
        boolean empty = claimed.body() == null && !headers.containsKey(BODY_HEADER);
        return new Answer(status, headers, empty ? new byte[0] : claimed.body());
    }

    private static JsonNode parsed(String headers) {
        try {
            return MAPPER.readTree(headers);
        } catch (JsonProcessingException noObject) {
            throw new IllegalStateException("the stored headers are no JSON", noObject);
        }
    }
}
