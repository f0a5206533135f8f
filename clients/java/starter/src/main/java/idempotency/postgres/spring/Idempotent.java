package idempotency.postgres.spring;

import idempotency.postgres.servlet.MissingKey;
import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * A controller's method that takes effect once for each key. Its changes by JdbcTemplate, JdbcClient or JPA
 * commit with its answer. With {@code leased} it has no transaction, and may take a {@link
 * idempotency.postgres.Claim} as a parameter.
 *
 * <p>Durations are written as everywhere in Spring Boot: {@code 30s}, {@code PT30S}. An option left out has the
 * value of the properties {@code idempotency.*}, or the default of {@link idempotency.postgres.servlet.Route}.
 * A {@link RouteCustomizer} sets options that an annotation cannot express.
 */
@Documented
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
public @interface Idempotent {
    /** Work that calls other services, under a claim that is committed first and extended by heartbeats. */
    boolean leased() default false;

    /** The operation: by default method and pattern, {@code POST /payments/{id}}. */
    String scope() default "";

    MissingKey missingKey() default MissingKey.REFUSE;

    /** How long a derived key counts: by default a day. */
    String window() default "";

    /** Fields of the JSON body that may differ in repeats. */
    String[] exclude() default {};

    /** How long an answer is replayed: by default the policy's ttl. */
    String ttl() default "";

    /** How long a leased claim may be silent: by default 30 s. */
    String lease() default "";

    /** How long a repeat waits for a running execution: by default it does not wait. */
    String waitFor() default "";

    /** {@code {"in_progress=425", "mismatch=400"}}. */
    String[] statuses() default {};

    String keyHeader() default "";

    String replayHeader() default "";

    /** Whether every answer carries the key's header. */
    boolean echoKey() default false;

    /** 1 MiB by default. */
    long maxRequestBytes() default -1;

    /** 1 MiB by default. */
    long maxAnswerBytes() default -1;

    /** Stores only the status of a larger answer, instead of failing. */
    boolean omitLargeAnswers() default false;

    /** How often the method is run when its transaction fails to serialize or loses its connection: 5. */
    int attempts() default -1;

    /** Limit for one run of the method: by default a minute, and ten of a leased one. */
    String handlerTimeout() default "";

    /** Runs the method while the database is away, without protection. */
    boolean unprotectedWithoutDatabase() default false;
}
