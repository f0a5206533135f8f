package idempotency.postgres.servlet;

import jakarta.servlet.http.Part;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A form (multipart/form-data). The container cannot read its parts from a body that has been read. */
final class Form {
    private static final String TYPE = "multipart/form-data";

    private Form() {}

    static boolean is(String mediaType) {
        return mediaType.equals(TYPE);
    }

    /** Null if the body is not what its type says. */
    static List<One> parts(String contentType, byte[] body) {
        String boundary = contentType == null ? null : parameter(contentType, "boundary");
        if (boundary == null || boundary.isEmpty()) {
            return null;
        }
        String mark = "\r\n--" + boundary;
        String whole = "\r\n" + latin(body); // the first mark may begin the body
        List<One> parts = new ArrayList<>();
        int at = whole.startsWith(mark) ? mark.length() : -1;
        while (at >= 0) {
            if (whole.startsWith("--", at)) {
                return whole.length() <= at + 4 && !parts.isEmpty() ? parts : null;
            }
            int end = whole.indexOf(mark, at);
            One part = end < 0 ? null : One.of(whole.substring(at, end));
            if (part == null) {
                return null;
            }
            parts.add(part);
            at = end + mark.length();
        }
        return null;
    }

    /** The parts of the fingerprint. */
    static List<byte[]> identity(List<One> parts) {
        List<byte[]> identity = new ArrayList<>();
        for (One part : parts) {
            identity.add(bytes(part.name));
            identity.add(bytes(part.fileName));
            identity.add(part.mediaType().isEmpty() ? null : bytes(part.mediaType()));
            identity.add(part.content);
        }
        return identity;
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    private static String latin(byte[] bytes) {
        return new String(bytes, StandardCharsets.ISO_8859_1);
    }

    /** A parameter of a field's value, without its quotes. */
    static String parameter(String value, String name) {
        Matcher found = Pattern.compile(";[ \\t]*" + name + "[ \\t]*=[ \\t]*(?:\"((?:[^\"\\\\]|\\\\.)*)\"|([^;\" \\t]*))",
                Pattern.CASE_INSENSITIVE).matcher(value);
        if (!found.find()) {
            return null;
        }
        return found.group(2) != null ? found.group(2) : found.group(1).replaceAll("\\\\([\"\\\\])", "$1");
    }

    /** A part in memory: it has the limit of the body. */
    static final class One implements Part {
        private final Map<String, List<String>> fields = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        private String name;
        private String fileName;
        private byte[] content;

        /** A part from the end of its boundary's line on. */
        private static One of(String text) {
            int end = text.indexOf("\r\n\r\n");
            if (!text.startsWith("\r\n") || end < 0) {
                return null;
            }
            One part = new One();
            for (String field : text.substring(2, Math.max(end, 2)).split("\r\n")) {
                int colon = field.indexOf(':');
                if (colon > 0) {
                    part.fields.computeIfAbsent(field.substring(0, colon).strip(), none -> new ArrayList<>())
                            .add(utf8(field.substring(colon + 1).strip()));
                }
            }
            String disposition = part.getHeader("Content-Disposition");
            if (disposition == null) {
                return null;
            }
            part.name = parameter(disposition, "name");
            part.fileName = parameter(disposition, "filename");
            part.content = text.substring(end + 4).getBytes(StandardCharsets.ISO_8859_1);
            return part;
        }

        private static String utf8(String latin) {
            return new String(latin.getBytes(StandardCharsets.ISO_8859_1), StandardCharsets.UTF_8);
        }

        private String mediaType() {
            String type = getContentType();
            return type == null ? "" : type.split(";", 2)[0].strip().toLowerCase(Locale.ROOT);
        }

        String text() {
            return new String(content, StandardCharsets.UTF_8);
        }

        @Override
        public InputStream getInputStream() {
            return new ByteArrayInputStream(content);
        }

        @Override
        public String getContentType() {
            return getHeader("Content-Type");
        }

        @Override
        public String getName() {
            return name;
        }

        @Override
        public String getSubmittedFileName() {
            return fileName;
        }

        @Override
        public long getSize() {
            return content.length;
        }

        @Override
        public void write(String file) throws IOException {
            Files.write(Path.of(file), content);
        }

        @Override
        public void delete() {
            // There is no file.
        }

        @Override
        public String getHeader(String field) {
            List<String> values = fields.get(field);
            return values == null ? null : values.get(0);
        }

        @Override
        public Collection<String> getHeaders(String field) {
            return fields.getOrDefault(field, List.of());
        }

        @Override
        public Collection<String> getHeaderNames() {
            return fields.keySet();
        }
    }
}
