package idempotency.postgres.servlet;

import idempotency.postgres.Answer;
import idempotency.postgres.Key;
import jakarta.servlet.ServletOutputStream;
import jakarta.servlet.http.Cookie;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.HttpServletResponseWrapper;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeSet;

/**
 * Keeps a handler's answer until the transaction's result decides whether to send it. Flushing has no effect,
 * and nothing is committed. Fields that others have set before are visible, but not kept.
 */
final class CapturedResponse extends HttpServletResponseWrapper implements AutoCloseable {
    private static final String CONTENT_TYPE = "Content-Type";

    private final Spool spool;
    private final ServletOutputStream out;
    private final List<Cookie> cookies = new ArrayList<>();
    private Map<String, List<String>> headers = Answer.noHeaders();
    private int status = SC_OK;
    private boolean isError;
    private String errorMessage;
    private Charset charset;
    private PrintWriter writer;
    private volatile boolean frozen;

    CapturedResponse(HttpServletResponse response, long limit, boolean spill) {
        super(response);
        spool = new Spool(limit, spill);
        out = spool.stream();
    }

    /** The handler has returned: a thread of it that goes on changes nothing any more. */
    synchronized void freeze() {
        flushBuffer();
        spool.freeze();
        frozen = true;
    }

    /** The answer is not sent. It does not wait for the handler, which may be at work on it. */
    void abandon() {
        frozen = true;
        spool.abandon();
    }

    // The captured result.

    boolean isTooLarge() {
        return spool.isTooLarge();
    }

    boolean isError() {
        return isError;
    }

    /** The answer to store. An error that a handler sent itself has its message as body. */
    synchronized Answer answer() {
        if (isError) {
            headers.put(CONTENT_TYPE, List.of("text/plain;charset=UTF-8"));
            spool.replace((errorMessage == null ? "" : errorMessage).getBytes(StandardCharsets.UTF_8));
            isError = false;
        }
        return spool.isSpilled() ? Answer.omitted(status) : new Answer(status, headers, spool.kept());
    }

    /** The answer so far, for the route's verdict. A body too large to keep is null. */
    synchronized Answer shown() {
        Map<String, List<String>> fields = Answer.noHeaders();
        headers.forEach((name, values) -> fields.put(name, List.copyOf(values)));
        return new Answer(status, fields, spool.isSpilled() ? null : spool.kept());
    }

    /** Sends it; an error goes to the container's error page. */
    synchronized void sendTo(HttpServletResponse response) throws IOException {
        cookies.forEach(response::addCookie);
        if (isError) {
            headers.remove(CONTENT_TYPE);
            Answers.setHeaders(response, headers);
            response.sendError(status, errorMessage);
            return;
        }
        Answers.setHeaders(response, headers);
        response.setStatus(status);
        if (Answers.hasBody(status)) {
            response.setContentLengthLong(spool.size());
            spool.writeTo(response.getOutputStream());
        }
    }

    @Override
    public void close() {
        spool.close();
    }

    // Status.

    @Override
    public synchronized void setStatus(int status) {
        if (frozen) {
            return;
        }
        this.status = status;
    }

    @Override
    public int getStatus() {
        return status;
    }

    @Override
    public void sendError(int status) {
        sendError(status, null);
    }

    @Override
    public synchronized void sendError(int status, String message) {
        if (frozen) {
            return;
        }
        resetBuffer();
        this.status = status;
        this.isError = true;
        this.errorMessage = message;
    }

    @Override
    public synchronized void sendRedirect(String location) {
        if (frozen) {
            return;
        }
        resetBuffer();
        setStatus(SC_FOUND);
        setHeader("Location", location);
    }

    // Fields.

    @Override
    public synchronized void setHeader(String name, String value) {
        if (frozen) {
            return;
        }
        if (value == null) {
            headers.remove(name);
        } else if (name.equalsIgnoreCase(CONTENT_TYPE)) {
            setContentType(value);
        } else if (isSendable(name)) {
            List<String> values = new ArrayList<>();
            values.add(sanitized(value));
            headers.put(name, values);
        }
    }

    @Override
    public synchronized void addHeader(String name, String value) {
        if (frozen) {
            return;
        }
        if (name.equalsIgnoreCase(CONTENT_TYPE)) {
            setContentType(value);
        } else if (value != null && isSendable(name)) {
            headers.computeIfAbsent(name, none -> new ArrayList<>()).add(sanitized(value));
        }
    }

    /** The length follows from the body. */
    private static boolean isSendable(String name) {
        return !name.isEmpty() && name.chars().allMatch(Key::isToken) && !name.equalsIgnoreCase("Content-Length")
                && !name.equalsIgnoreCase("Transfer-Encoding");
    }

    /** The value as it is sent: a control character could begin another field, and cannot be stored. */
    private static String sanitized(String value) {
        StringBuilder text = new StringBuilder(value);
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            text.setCharAt(i, c < ' ' && c != '\t' || c == 0x7f ? ' ' : c > 0xff ? '?' : c);
        }
        return text.toString().strip();
    }

    @Override
    public void setIntHeader(String name, int value) {
        setHeader(name, Integer.toString(value));
    }

    @Override
    public void addIntHeader(String name, int value) {
        addHeader(name, Integer.toString(value));
    }

    @Override
    public void setDateHeader(String name, long millis) {
        setHeader(name, date(millis));
    }

    @Override
    public void addDateHeader(String name, long millis) {
        addHeader(name, date(millis));
    }

    private static String date(long millis) {
        return DateTimeFormatter.ofPattern("EEE, dd MMM yyyy HH:mm:ss 'GMT'", Locale.ENGLISH)
                .format(Instant.ofEpochMilli(millis).atOffset(ZoneOffset.UTC));
    }

    @Override
    public synchronized boolean containsHeader(String name) {
        return headers.containsKey(name) || super.containsHeader(name);
    }

    @Override
    public synchronized String getHeader(String name) {
        List<String> values = headers.get(name);
        return values == null ? super.getHeader(name) : values.get(0);
    }

    @Override
    public synchronized Collection<String> getHeaders(String name) {
        return headers.containsKey(name) ? List.copyOf(headers.get(name)) : super.getHeaders(name);
    }

    @Override
    public synchronized Collection<String> getHeaderNames() {
        Collection<String> names = new TreeSet<>(String.CASE_INSENSITIVE_ORDER);
        names.addAll(super.getHeaderNames());
        names.addAll(headers.keySet());
        return names;
    }

    @Override
    public synchronized void addCookie(Cookie cookie) {
        if (frozen) {
            return;
        }
        cookies.add(cookie);
    }

    @Override
    public void setLocale(Locale locale) {
        setHeader("Content-Language", locale.toLanguageTag());
    }

    // Type and body.

    @Override
    public synchronized void setContentType(String type) {
        if (frozen) {
            return;
        }
        if (type == null) {
            headers.remove(CONTENT_TYPE);
            return;
        }
        int at = type.toLowerCase(Locale.ROOT).indexOf("charset=");
        if (at >= 0) {
            charset = Charset.forName(type.substring(at + 8).split(";", 2)[0].replace("\"", "").strip());
        }
        String full = at < 0 && charset != null && type.startsWith("text/") ? type + ";charset=" + charset.name() : type;
        headers.put(CONTENT_TYPE, List.of(sanitized(full)));
    }

    @Override
    public String getContentType() {
        List<String> values = headers.get(CONTENT_TYPE);
        return values == null ? null : values.get(0);
    }

    @Override
    public synchronized void setCharacterEncoding(String name) {
        if (frozen) {
            return;
        }
        charset = name == null ? null : Charset.forName(name);
        String type = getContentType();
        if (type != null) {
            String bare = type.replaceAll("(?i);\\s*charset=[^;]*", "");
            headers.put(CONTENT_TYPE, List.of(charset == null ? bare : bare + ";charset=" + charset.name()));
        }
    }

    @Override
    public String getCharacterEncoding() {
        return charset == null ? "ISO-8859-1" : charset.name();
    }

    @Override
    public ServletOutputStream getOutputStream() {
        return out;
    }

    @Override
    public synchronized PrintWriter getWriter() {
        if (writer == null) {
            setCharacterEncoding(getCharacterEncoding());
            writer = new PrintWriter(new OutputStreamWriter(out, charset), false);
        }
        return writer;
    }

    @Override
    public void setContentLength(int length) {
        // That of the body, when it is known.
    }

    @Override
    public void setContentLengthLong(long length) {
        // That of the body, when it is known.
    }

    @Override
    public synchronized void flushBuffer() {
        if (frozen) {
            return;
        }
        if (writer != null) {
            writer.flush();
        }
    }

    @Override
    public synchronized void resetBuffer() {
        if (frozen) {
            return;
        }
        flushBuffer();
        spool.reset();
    }

    @Override
    public synchronized void reset() {
        if (frozen) {
            return;
        }
        resetBuffer();
        headers = Answer.noHeaders();
        cookies.clear();
        status = SC_OK;
        isError = false;
        charset = null;
        writer = null;
    }

    @Override
    public boolean isCommitted() {
        return false;
    }
}
