package idempotency.postgres.servlet;

import idempotency.postgres.Identity;
import jakarta.servlet.http.HttpServletRequest;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.zip.GZIPInputStream;

/** The body of a request, read up to a limit and decoded, and its part of the request's identity. */
final class Body {
    static final class Refused extends Exception {
        final transient Problem problem;

        Refused(Problem problem) {
            super(problem.title(), null, false, false);
            this.problem = problem;
        }
    }

    private Body() {}

    /** The limit counts decoded bytes: a little gzip may hold much. */
    static byte[] read(HttpServletRequest request, long limit) throws Refused {
        boolean zipped = isZipped(request);
        if (request.getContentLengthLong() > limit) {
            throw new Refused(Problem.TOO_LARGE);
        }
        byte[] body;
        try {
            InputStream in = request.getInputStream();
            int most = (int) Math.min(limit + 1, Integer.MAX_VALUE - 8);
            body = (zipped ? new GZIPInputStream(in) : in).readNBytes(most);
        } catch (IOException brokenOff) {
            throw new Refused(Problem.BODY);
        }
        if (body.length > limit) {
            throw new Refused(Problem.TOO_LARGE);
        }
        return body;
    }

    private static boolean isZipped(HttpServletRequest request) throws Refused {
        List<String> codings = Collections.list(request.getHeaders("Content-Encoding")).stream().map(String::strip)
                .filter(coding -> !coding.equalsIgnoreCase("identity")).toList();
        boolean zipped = codings.size() == 1 && (codings.get(0).equalsIgnoreCase("gzip") || codings.get(0).equalsIgnoreCase("x-gzip"));
        if (!codings.isEmpty() && !zipped) {
            throw new Refused(Problem.CODING);
        }
        return zipped;
    }

    static Identity identity(Route route, HttpServletRequest request, byte[] body) throws Refused {
        String target = request.getRequestURI() + (request.getQueryString() == null ? "" : "?" + request.getQueryString());
        String type = mediaType(request);
        boolean json = body.length > 0 && (type.equals("application/json") || type.endsWith("+json"));
        List<Form.One> parts = Form.is(type) ? Form.parts(request.getContentType(), body) : null;
        Identity identity = json ? Identity.ofJson(request.getMethod(), target, type, text(body), route.exclude)
                : parts != null ? Identity.ofParts(request.getMethod(), target, type, Form.identity(parts))
                : Identity.ofBytes(request.getMethod(), target, type, body);
        return route.fingerprint == null ? identity : identity.comparing(route.fingerprint.apply(request, body));
    }

    /** In lower case and without parameters. */
    static String mediaType(HttpServletRequest request) {
        String field = request.getHeader("Content-Type");
        return field == null ? "" : field.split(";", 2)[0].strip().toLowerCase(Locale.ROOT);
    }

    private static String text(byte[] body) throws Refused {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(body)).toString();
        } catch (CharacterCodingException noUtf8) {
            throw new Refused(Problem.JSON);
        }
    }
}
