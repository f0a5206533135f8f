import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Writes it. */
class Json {
    static String object(Map<String, ?> members) {
        return members.entrySet().stream().map(member -> text(member.getKey()) + ": " + value(member.getValue()))
            .collect(Collectors.joining(", ", "{", "}"));
    }

    @SuppressWarnings("unchecked")
    private static String value(Object value) {
        if (value instanceof Map<?, ?> members) return object((Map<String, ?>) members);
        if (value instanceof List<?> list) return list.stream().map(Json::value).collect(Collectors.joining(", ", "[", "]"));
        return text(value.toString());
    }

    private static String text(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + '"';
    }
}
