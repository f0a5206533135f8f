package idempotency.postgres.spring;

import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;
import org.springframework.util.unit.DataSize;

/**
 * Options of all routes.
 *
 * @param databaseTimeout the longest time for a statement of this library, COMMIT included, or for a connection
 * @param filterOrder of the filter: behind Spring Security's, which is at -100
 * @param keyHeader the name of the key's header
 * @param replayHeader the name of the header that replays carry
 * @param maxRequestBytes larger bodies are answered 413
 * @param maxAnswerBytes larger answers cannot be kept
 * @param lease how long a leased claim may be silent
 */
@ConfigurationProperties("idempotency")
public record IdempotencyProperties(
        @DefaultValue("10s") Duration databaseTimeout,
        @DefaultValue("0") int filterOrder,
        @DefaultValue("Idempotency-Key") String keyHeader,
        @DefaultValue("Idempotent-Replayed") String replayHeader,
        @DefaultValue("1MB") DataSize maxRequestBytes,
        @DefaultValue("1MB") DataSize maxAnswerBytes,
        @DefaultValue("30s") Duration lease) {}
