package idempotency.postgres;

import java.io.IOException;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.time.Instant;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeParseException;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** For programs that call a service with idempotency keys: one key for all sendings, until the answer is final. */
public final class Caller {
    private static final Pattern PROBLEM = Pattern.compile("/problems/idempotency/([a-z-]+)\"");
    private static final Set<String> OPEN = Set.of("in-progress", "unknown", "retry-later", "unavailable", "handler-late");
    private static final Set<String> FINAL = Set.of("failed", "exhausted");

    private final HttpClient client;
    private final String keyHeader;
    private final int attempts;
    private final Duration base;
    private final Duration cap;
    private final Duration giveUpAfter;

    public Caller(HttpClient client) {
        this(client, "Idempotency-Key", 8, Duration.ofMillis(200), Duration.ofSeconds(30), Duration.ofMinutes(5));
    }

    /**
     * @param attempts how often a request is sent
     * @param base the longest first pause; each further one may be twice as long, up to {@code cap}
     * @param giveUpAfter no pause begins that would end later than this after the first sending
     */
    public Caller(HttpClient client, String keyHeader, int attempts, Duration base, Duration cap, Duration giveUpAfter) {
        if (keyHeader.isEmpty() || attempts < 1 || base.isNegative() || cap.isNegative() || giveUpAfter.isNegative()) {
            throw new IllegalArgumentException("idempotency: a Caller sends at least once, and waits no negative time");
        }
        this.client = client;
        this.keyHeader = keyHeader;
        this.attempts = attempts;
        this.base = base;
        this.cap = cap;
        this.giveUpAfter = giveUpAfter;
    }

    /** The answer is not known yet. A later call with the same key goes on; another key could do the work twice. */
    public static final class NotFinal extends IOException {
        private final String key;
        private final transient HttpResponse<?> response;

        NotFinal(String key, HttpResponse<?> response, IOException cause) {
            super("no final answer under the key " + key, cause);
            this.key = key;
            this.response = response;
        }

        public String key() {
            return key;
        }

        /** The last answer, if there was one. */
        public Optional<HttpResponse<?>> response() {
            return Optional.ofNullable(response);
        }
    }

    /** A UUID of version 7: keys of one moment lie together in an index. */
    public static String newKey() {
        return Key.generate();
    }

    /** Sends the request, the same each time. Give it a timeout. */
    public <T> HttpResponse<T> send(String key, HttpRequest request, HttpResponse.BodyHandler<T> handler)
            throws IOException, InterruptedException {
        HttpRequest keyed = HttpRequest.newBuilder(request, (name, value) -> !name.equalsIgnoreCase(keyHeader))
                .header(keyHeader, Key.format(key)).build();
        long end = System.nanoTime() + giveUpAfter.toNanos();
        for (int sent = 1;; sent++) {
            Sent<T> answer = null;
            IOException failure = null;
            try {
                answer = sent(keyed, handler);
                if (answer.isFinal()) {
                    return answer.response;
                }
            } catch (IOException e) {
                failure = e; // no answer: it may have taken effect
            }
            long pause = pause(sent) + (answer == null ? 0 : answer.retryAfter());
            if (sent >= attempts || System.nanoTime() + pause * 1_000_000 > end) {
                throw new NotFinal(key, answer == null ? null : answer.response, failure);
            }
            Thread.sleep(pause);
        }
    }

    /** Milliseconds, with full jitter. */
    private long pause(int sent) {
        double longest = Math.min(cap.toMillis(), base.toMillis() * Math.pow(2, sent - 1));
        return (long) (ThreadLocalRandom.current().nextDouble() * longest);
    }

    private record Sent<T>(HttpResponse<T> response, String problem) {
        boolean isFinal() {
            int status = response.statusCode();
            boolean replayed = response.headers().firstValue("Idempotent-Replayed").orElse("").equals("true");
            return replayed || FINAL.contains(problem)
                    || !OPEN.contains(problem) && Answer.isKept(status);
        }

        /** Milliseconds. */
        long retryAfter() {
            String field = response.headers().firstValue("Retry-After").orElse("").strip();
            if (field.matches("\\d{1,9}")) {
                return Long.parseLong(field) * 1000;
            }
            try {
                Instant when = ZonedDateTime.parse(field, DateTimeFormatter.RFC_1123_DATE_TIME).toInstant();
                return Math.max(0, Duration.between(Instant.now(), when).toMillis());
            } catch (DateTimeParseException noDate) {
                return 0;
            }
        }
    }

    /** The word of a problem document is read before the body becomes a T. */
    private <T> Sent<T> sent(HttpRequest request, HttpResponse.BodyHandler<T> handler) throws IOException, InterruptedException {
        HttpResponse<Both<T>> both = client.send(request, info -> HttpResponse.BodySubscribers.mapping(
                HttpResponse.BodySubscribers.ofByteArray(), bytes -> new Both<>(bytes, info)));
        boolean document = both.headers().firstValue("Content-Type").orElse("").startsWith("application/problem+json");
        Matcher word = PROBLEM.matcher(document ? new String(both.body().bytes, java.nio.charset.StandardCharsets.UTF_8) : "");
        String problem = word.find() ? word.group(1) : "";
        return new Sent<>(new Response<>(both, both.body().as(handler)), problem);
    }

    private record Both<T>(byte[] bytes, HttpResponse.ResponseInfo info) {
        T as(HttpResponse.BodyHandler<T> handler) {
            HttpResponse.BodySubscriber<T> subscriber = handler.apply(info);
            subscriber.onSubscribe(new java.util.concurrent.Flow.Subscription() {
                @Override
                public void request(long n) {
                    // All of it is there.
                }

                @Override
                public void cancel() {
                    // It has come already.
                }
            });
            subscriber.onNext(java.util.List.of(java.nio.ByteBuffer.wrap(bytes)));
            subscriber.onComplete();
            return subscriber.getBody().toCompletableFuture().join();
        }
    }

    /** The answer with the caller's kind of body. */
    private record Response<T>(HttpResponse<?> of, T body) implements HttpResponse<T> {
        @Override
        public int statusCode() {
            return of.statusCode();
        }

        @Override
        public HttpRequest request() {
            return of.request();
        }

        @Override
        public Optional<HttpResponse<T>> previousResponse() {
            return Optional.empty();
        }

        @Override
        public java.net.http.HttpHeaders headers() {
            return of.headers();
        }

        @Override
        public Optional<javax.net.ssl.SSLSession> sslSession() {
            return of.sslSession();
        }

        @Override
        public java.net.URI uri() {
            return of.uri();
        }

        @Override
        public HttpClient.Version version() {
            return of.version();
        }
    }
}
