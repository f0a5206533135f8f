package idempotency.postgres;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** The stored form of results of work. */
final class Json {
    private final ObjectMapper mapper;

    Json(ObjectMapper mapper) {
        this.mapper = mapper;
    }

    String write(Object value) {
        try {
            return mapper.writeValueAsString(value);
        } catch (JsonProcessingException e) {
            throw new IllegalArgumentException("the result does not fit into JSON", e);
        }
    }

    <T> T read(JsonNode value, Class<T> type) {
        try {
            return value == null || type == Void.class ? null : mapper.treeToValue(value, type);
        } catch (JsonProcessingException e) {
            throw new IllegalStateException("what is stored is no " + type.getName(), e);
        }
    }

    <T> T read(byte[] value, Class<T> type) {
        return value == null || value.length == 0 ? null : read(tree(new String(value, java.nio.charset.StandardCharsets.UTF_8)), type);
    }

    JsonNode tree(String text) {
        try {
            return mapper.readTree(text);
        } catch (JsonProcessingException e) {
            throw new IllegalStateException("what is stored is no JSON", e);
        }
    }

    JsonNode toTree(Object value) {
        return mapper.valueToTree(value);
    }

    /** An object to add members to; existing members are kept. */
    ObjectNode object(String text) {
        return text != null && tree(text) instanceof ObjectNode known ? known.deepCopy() : mapper.createObjectNode();
    }
}
