package idempotency.postgres.servlet;

import idempotency.postgres.Answer;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.List;
import java.util.Map;

/** Sends stored answers, and our own. */
final class Answers {
    private Answers() {}

    static void send(HttpServletResponse response, Answer answer) throws IOException {
        setHeaders(response, answer.headers());
        response.setStatus(answer.status());
        byte[] body = answer.body() == null ? new byte[0] : answer.body();
        if (hasBody(answer.status())) {
            response.setContentLength(body.length);
            response.getOutputStream().write(body);
        }
    }

    /** Without fields that describe a body which is missing. */
    static void setHeaders(HttpServletResponse response, Map<String, List<String>> headers) {
        boolean omitted = headers.containsKey(Answer.BODY_HEADER);
        headers.forEach((name, values) -> {
            if (name.equalsIgnoreCase("Content-Type")) {
                if (!omitted) {
                    response.setContentType(values.get(0));
                }
            } else if (!omitted || !name.equalsIgnoreCase("Content-Encoding")) {
                response.setHeader(name, values.get(0));
                values.stream().skip(1).forEach(value -> response.addHeader(name, value));
            }
        });
    }

    static boolean hasBody(int status) {
        return status != 204 && status != 304;
    }
}
