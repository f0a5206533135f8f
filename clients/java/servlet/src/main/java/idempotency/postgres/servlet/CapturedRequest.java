package idempotency.postgres.servlet;

import jakarta.servlet.AsyncContext;
import jakarta.servlet.ReadListener;
import jakarta.servlet.ServletInputStream;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.Part;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.net.URLDecoder;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/** A request whose body has been read; each run of the handler can read it again. */
final class CapturedRequest extends HttpServletRequestWrapper {
    private final byte[] body;
    private final In in;
    private BufferedReader reader;
    private Map<String, String[]> parameters;

    CapturedRequest(HttpServletRequest request, byte[] body) {
        super(request);
        this.body = body;
        this.in = new In(body);
    }

    @Override
    public ServletInputStream getInputStream() {
        return in;
    }

    @Override
    public BufferedReader getReader() {
        if (reader == null) {
            reader = new BufferedReader(new InputStreamReader(in, charset()));
        }
        return reader;
    }

    private Charset charset() {
        return getCharacterEncoding() == null ? StandardCharsets.UTF_8 : Charset.forName(getCharacterEncoding());
    }

    @Override
    public int getContentLength() {
        return body.length;
    }

    @Override
    public long getContentLengthLong() {
        return body.length;
    }

    // A decoded body has no coding any more, and another length.

    private static boolean isOfTheWire(String name) {
        return name.equalsIgnoreCase("Content-Encoding") || name.equalsIgnoreCase("Transfer-Encoding");
    }

    @Override
    public String getHeader(String name) {
        return name.equalsIgnoreCase("Content-Length") ? Integer.toString(body.length)
                : isOfTheWire(name) ? null : super.getHeader(name);
    }

    @Override
    public Enumeration<String> getHeaders(String name) {
        return name.equalsIgnoreCase("Content-Length") || isOfTheWire(name)
                ? Collections.enumeration(getHeader(name) == null ? List.of() : List.of(getHeader(name)))
                : super.getHeaders(name);
    }

    @Override
    public int getIntHeader(String name) {
        return name.equalsIgnoreCase("Content-Length") ? body.length : super.getIntHeader(name);
    }

    @Override
    public Enumeration<String> getHeaderNames() {
        Set<String> names = new TreeSet<>(String.CASE_INSENSITIVE_ORDER);
        names.addAll(Collections.list(super.getHeaderNames()));
        names.removeIf(CapturedRequest::isOfTheWire);
        names.add("Content-Length");
        return Collections.enumeration(names);
    }

    // The container would read a form from a body that has been read.

    private Map<String, String[]> parameters() {
        if (parameters == null) {
            parameters = new LinkedHashMap<>(super.getParameterMap());
            for (Form.One part : parts()) {
                if (part.getSubmittedFileName() == null && part.getName() != null) {
                    add(part.getName(), part.text());
                }
            }
            if (Body.mediaType(this).equals("application/x-www-form-urlencoded")) {
                for (String pair : new String(body, StandardCharsets.ISO_8859_1).split("&")) {
                    if (!pair.isEmpty()) {
                        String[] halves = pair.split("=", 2);
                        add(decoded(halves[0]), halves.length < 2 ? "" : decoded(halves[1]));
                    }
                }
            }
        }
        return parameters;
    }

    private void add(String name, String value) {
        String[] before = parameters.getOrDefault(name, new String[0]);
        String[] values = Arrays.copyOf(before, before.length + 1);
        values[before.length] = value;
        parameters.put(name, values);
    }

    private String decoded(String text) {
        return URLDecoder.decode(text, charset());
    }

    @Override
    public String getParameter(String name) {
        String[] values = parameters().get(name);
        return values == null ? null : values[0];
    }

    @Override
    public Map<String, String[]> getParameterMap() {
        return Collections.unmodifiableMap(parameters());
    }

    @Override
    public Enumeration<String> getParameterNames() {
        return Collections.enumeration(new ArrayList<>(parameters().keySet()));
    }

    @Override
    public String[] getParameterValues(String name) {
        return parameters().get(name);
    }

    /** None of a body that is no form: what it is then, the handler decides. */
    private List<Form.One> parts() {
        List<Form.One> parts = Form.is(Body.mediaType(this)) ? Form.parts(getContentType(), body) : null;
        return parts == null ? List.of() : parts;
    }

    @Override
    public Collection<Part> getParts() {
        return new ArrayList<>(parts());
    }

    @Override
    public Part getPart(String name) {
        return parts().stream().filter(part -> name.equals(part.getName())).findFirst().orElse(null);
    }

    // The thread that runs the handler holds the transaction and the claim.

    @Override
    public boolean isAsyncSupported() {
        return false;
    }

    @Override
    public AsyncContext startAsync() {
        throw new IllegalStateException("idempotency: a protected route answers in the thread that it is called in");
    }

    @Override
    public AsyncContext startAsync(ServletRequest request, ServletResponse response) {
        return startAsync();
    }

    private static final class In extends ServletInputStream {
        private final ByteArrayInputStream bytes;

        In(byte[] body) {
            bytes = new ByteArrayInputStream(body);
        }

        @Override
        public int read() {
            return bytes.read();
        }

        @Override
        public int read(byte[] into, int from, int count) {
            return bytes.read(into, from, count);
        }

        @Override
        public int available() {
            return bytes.available();
        }

        @Override
        public boolean isFinished() {
            return bytes.available() == 0;
        }

        @Override
        public boolean isReady() {
            return true;
        }

        @Override
        public void setReadListener(ReadListener listener) {
            throw new IllegalStateException("idempotency: a protected route reads in the thread that it is called in");
        }
    }
}
